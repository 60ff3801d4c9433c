// Copies of several ranks to and from the disks of their nodes on their way: as many as are under
// way at one time have equal parts of the rate.
#pragma once

#include <optional>
#include <vector>

#include "base/lane.hpp"
#include "plan/program/shared_disk.hpp"

namespace garonne::plan {

struct DiskCopy {
  int program = -1;
  int instruction = -1;
  Lane lane = Lane::DiskWrite;
  double begin = 0;
  double seconds = 0;  // with the even share
};

// Time goes on from the end of a copy to that of the next: what begins in between has to be there
// before the next end is asked for. Of a lane of a rank one copy is under way at a time.
class DiskCopies {
 public:
  explicit DiskCopies(const SharedDisk& disk) : disk_(disk) {}

  // No sooner than the end that was told last.
  void begin(const DiskCopy& copy);
  bool is_under_way(int program, Lane lane) const;

  struct End {
    DiskCopy copy;
    double seconds = 0;  // from the start of the step
  };
  // None where none is under way.
  std::optional<End> next();

 private:
  struct Left {
    DiskCopy copy;
    double moves_at = 0;  // behind its latency
    double seconds = 0;   // with the even share
  };

  double speed(const Left& one) const;

  const SharedDisk& disk_;
  double now_ = 0;
  std::vector<Left> left_;
};

}  // namespace garonne::plan
