// Between two questions how far a stream is.
#pragma once

#include <chrono>
#include <thread>

namespace garonne::device {

// Long waits take little of a core, short ones end soon.
inline void pause_polling(int turn) {
  if (turn < 20) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace garonne::device
