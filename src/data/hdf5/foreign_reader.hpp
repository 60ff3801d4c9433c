// Reads what HDF5 cannot be trusted with in files of other programs.
//
// Elements of variable length lie in heaps of the file, and in HDF5 1.10 a damaged heap ends in a
// crash or an endless loop; so does a virtual dataset's list of sources, which is in one.
// Damage to structures ends in a crash now and then, too: those of before 1.10 have no checksums,
// and those of later can be made with right ones. So texts are read, and all files tried, by a
// process of its own with little time and memory: the program `garonne-hdf5-reader` beside the
// running one, or in bin/ beside its folder. It is started when something is asked for the first
// time, and has a process for each file (data/hdf5/foreign_keeper.hpp).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_wire.hpp"

namespace garonne::data {

// For one thread at a time. Several files may share one.
class ForeignReader {
 public:
  // Of processor time, for a question or an object of a walk, beside what the bytes of the file
  // take: what a file holds is read in a tenth of it, and who waits for a loop to end is told soon.
  static constexpr double usual_seconds = 1;

  // `program` is for tests; empty = the one beside the running program. So are the seconds that are
  // waited for an answer, and those in place of usual_seconds, at least a millisecond.
  explicit ForeignReader(std::string program = "", double patience_seconds = 30,
                         double least_seconds = usual_seconds)
      : program_(std::move(program)),
        patience_seconds_(patience_seconds),
        least_seconds_(least_seconds) {}
  ForeignReader(const ForeignReader&) = delete;
  ForeignReader& operator=(const ForeignReader&) = delete;
  ~ForeignReader() { stop(); }

  // IoError where a walk through the objects of the file `path` crashes or finds no end. What HDF5
  // merely refuses to read is left for those who want it. Returns why HDF5 does not open the file,
  // in its words; empty = it does. What it refuses once it may not refuse the next time: where it
  // reads beyond its memory that is chance.
  std::string try_structure(const std::string& path);

  // The texts of `attribute` of `object` in the file `path`, or of the dataset `object`. IoError
  // with the path and `label` where they cannot be read, HDF5 crashes or finds no end.
  std::vector<std::string> ask(ForeignKind kind, const std::string& path, const std::string& object,
                               const std::string& attribute, const std::string& label);

 private:
  void start(const std::string& path);
  void stop();
  void send(const std::string& bytes, const std::string& path, const std::string& label);
  void receive(void* bytes, std::size_t count, double deadline, const std::string& path,
               const std::string& label);
  std::uint32_t receive_number(double deadline, const std::string& path, const std::string& label);
  // Takes the process away and says how it ended.
  [[noreturn]] void fail(const std::string& path, const std::string& label, bool out_of_time);

  std::string program_;
  double patience_seconds_;
  double least_seconds_;
  pid_t process_ = -1;
  int socket_ = -1;
};

}  // namespace garonne::data
