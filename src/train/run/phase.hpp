// What a rank of a run is in, in words, for whoever waits for it.
#pragma once

#include <functional>
#include <mutex>
#include <string>

namespace garonne::train {

// Any thread.
class Phase {
 public:
  // "step 7", "the checkpoint of step 7". `otherwise` follows it where there is no detail.
  void set(std::string text, std::string otherwise = "");
  // What follows, as the instruction, given `otherwise` of now; not called any more once another
  // one is set.
  void set_detail(std::function<std::string(const std::string& otherwise)> detail);
  // "step 7, forward layer 3 of micro-batch 0".
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string text_;
  std::string otherwise_;
  std::function<std::string(const std::string& otherwise)> detail_;
};

}  // namespace garonne::train
