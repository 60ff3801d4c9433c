// What a program and its process for reading elements of variable length say to each other
// (data/hdf5/foreign_reader.hpp): both are of one build, so numbers are as they lie in memory. For
// the sources of this room.
//
// A request is its kind, then path, object and attribute, each as a length and bytes. The answer is
// a state and a number of texts, each as a length and bytes. Lengths and numbers are 32 bits wide.
#pragma once

#include <cstdint>

namespace garonne::data {

// What is asked for: the texts of an attribute, those of a one-dimensional dataset, the name of the
// first scale of each dimension ("" = none) from the attribute that lists them, or nothing but a
// walk through the objects of the file (a text where it does not open: why) or the opening of one
// of them, with the list of sources where it is a virtual dataset. Within the program only: its
// closing.
enum class ForeignKind : std::uint32_t {
  AttributeTexts = 1,
  DatasetTexts = 2,
  Scales = 3,
  Structure = 4,
  Opening = 5,
  Closing = 6
};

// Failed: the file is damaged; TooLong: the texts are; Ended: the process that read it, and instead
// of texts comes how, as waitpid says it.
enum class ForeignState : std::uint32_t { Done = 0, Failed = 1, TooLong = 2, Ended = 3 };

// Of a request, and of all texts of an answer with their lengths.
inline constexpr std::uint32_t most_request_bytes = 64 << 10;
inline constexpr std::uint32_t most_answer_bytes = 8 << 20;

}  // namespace garonne::data
