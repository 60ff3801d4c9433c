// How processes agree that have nothing in common any more but a file system.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace garonne::train {

// The end of one member. All members name the same folder, which nobody else uses, and call the
// same members in the same order.
class FileMeeting {
 public:
  // `news`: a number that changes while somebody is at work; patience counts from its last change.
  // It is asked for twice a second at most, or twice within the patience.
  // Throws IoError when the folder cannot be made.
  FileMeeting(std::string folder, int member, int members, std::chrono::milliseconds patience,
              std::function<std::int64_t()> news);

  // Runs `work` on every member; throws IoError on all of them when it threw a garonne::Error on
  // any, or when somebody was not heard of for too long.
  void phase(const std::function<void()>& work);
  // Texts of all members, on member 0 (nothing elsewhere).
  std::vector<std::string> gather(const std::string& text);
  // The text of the lowest member that has one, on every member; empty where none has.
  std::string first_text(const std::string& text);
  // The last call: member 0 removes the folder when all others have called it too.
  void leave();

 private:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void put(const std::string& name, const std::string& text) const;
  std::string wait_for(const std::string& name) const;

  std::string folder_;
  int member_;
  int members_;
  std::chrono::milliseconds patience_;
  std::function<std::int64_t()> news_;
  int number_ = 0;
};

}  // namespace garonne::train
