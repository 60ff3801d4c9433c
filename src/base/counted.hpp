// Numbers of things, for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace garonne {

// "1 rank", "8 ranks", "2 micro-batches": `one` is the word for one of them and gets an s, or es
// after ch.
std::string counted(std::int64_t count, std::string_view one);

}  // namespace garonne
