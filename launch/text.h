#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace taco {

// Small pieces that the parsers share.

// Without blanks (also \r, \t) at both ends.
std::string trimmed(std::string_view text);

// The parts between separators; "a,,b" has an empty one in the middle.
std::vector<std::string> splitAt(std::string_view text, char separator);

// A whole decimal number that fits an int, without sign or blanks; nothing for anything else.
std::optional<int> wholeNumber(std::string_view text);

// 'text' for a message: control characters and what is no ASCII as \xNN, cut after 120 characters.
std::string inQuotes(std::string_view text);

// "a, b and c".
std::string listed(const std::vector<std::string>& texts);

}  // namespace taco
