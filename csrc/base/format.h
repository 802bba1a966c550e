#pragma once

#include <charconv>
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace taco {

// One part of a message, as text. Not a template over all combinations of parts, as a stream would
// be: messages are everywhere, and that would make half of the compile time.
class Piece {
 public:
  Piece(const char* text) : text_(text) {}
  Piece(std::string_view text) : text_(text) {}
  Piece(const std::string& text) : text_(text) {}
  Piece(char letter) : text_(buffer_, 1) { buffer_[0] = letter; }
  Piece(bool value) : Piece(value ? '1' : '0') {}
  template <std::integral Int>
  Piece(Int value) : text_(buffer_, static_cast<size_t>(
                                       std::to_chars(buffer_, buffer_ + sizeof buffer_, value).ptr -
                                       buffer_)) {}
  Piece(double value);  // six significant digits
  Piece(const Piece&) = delete;

  std::string_view text() const { return text_; }

 private:
  char buffer_[24];
  std::string_view text_;
};

std::string join(std::initializer_list<Piece> pieces);

// str("rank ", 3, " died"): the parts one after the other.
template <typename... Parts>
std::string str(const Parts&... parts) {
  return join({Piece(parts)...});
}

}  // namespace taco
