#include "csrc/base/format.h"

#include <cstdio>

namespace taco {

Piece::Piece(double value) {
  const int length = std::snprintf(buffer_, sizeof buffer_, "%g", value);
  text_ = std::string_view(buffer_, static_cast<size_t>(length));
}

std::string join(std::initializer_list<Piece> pieces) {
  size_t length = 0;
  for (const Piece& piece : pieces) length += piece.text().size();
  std::string joined;
  joined.reserve(length);
  for (const Piece& piece : pieces) joined += piece.text();
  return joined;
}

}  // namespace taco
