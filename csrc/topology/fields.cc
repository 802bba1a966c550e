#include "csrc/topology/fields.h"

#include "csrc/base/error.h"
#include "csrc/base/format.h"

namespace taco {

std::string pack(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) text += str(field.size(), ":", field);
  return text;
}

std::vector<std::string> unpack(const std::string& text) {
  std::vector<std::string> fields;
  size_t at = 0;
  while (at < text.size()) {
    size_t length = 0;
    size_t digits = 0;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9' && digits < 12) {
      length = length * 10 + static_cast<size_t>(text[at++] - '0');
      ++digits;
    }
    if (digits == 0 || at >= text.size() || text[at] != ':' || length > text.size() - at - 1) {
      throw Error(ErrorCode::kPeerFailed,
                  str("a record in the store is damaged (", text.size(), " bytes, at byte ", at,
                      "); is another program using the same store and keys?"));
    }
    fields.push_back(text.substr(at + 1, length));
    at += 1 + length;
  }
  return fields;
}

}  // namespace taco
