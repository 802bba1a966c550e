#pragma once

#include <map>
#include <string>
#include <vector>

namespace taco {

// How records travel through the store: a list of strings of any bytes, each with its length in
// front ("5:hello"). unpack throws Error(kPeerFailed) if the text is not one that pack made.
std::string pack(const std::vector<std::string>& fields);
std::vector<std::string> unpack(const std::string& text);

}  // namespace taco
