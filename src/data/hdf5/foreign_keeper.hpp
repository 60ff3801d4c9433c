// In the program garonne-hdf5-reader: the process that was started reads no file. It has one do it
// that it forks, and another one where a file made HDF5 crash: to start a program that finds the
// libraries of HDF5 takes several times as long. After some files there is a new one, too: HDF5
// keeps some of what it could not read.
#pragma once

#include <functional>
#include <string>

#include "data/hdf5/hdf5_wire.hpp"

namespace garonne::data {

struct ForeignQuestion {
  ForeignKind kind = {};
  std::string path;
  std::string object;
  std::string attribute;
};

// Serves what asks through descriptor 0, to its end; returns the exit code. In each new process
// `prepare` is called, and then `answer` for every question; its bytes are what hdf5_wire.hpp says.
// Of a process that ended the answer is ForeignState::Ended and how. Before a question about
// another file than the last one comes ForeignKind::Closing, which no end is held against a file
// of.
int keep_answering(const std::function<void()>& prepare,
                   const std::function<std::string(const ForeignQuestion&)>& answer);

}  // namespace garonne::data
