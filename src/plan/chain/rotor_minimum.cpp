#include "plan/chain/rotor_minimum.hpp"

#include <algorithm>

namespace garonne::plan {

RotorMinimum::RotorMinimum(const RotorModel& model)
    : index_(model.blocks()), bytes_(index_.size()), excess_(index_.size()) {
  for (int last = 0; last < model.blocks(); ++last) {
    for (int first = last; first >= 0; --first) {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      double seconds = no_answer;
      const auto offer = [&](std::int64_t bytes, double excess) {
        if (bytes > least || (bytes == least && excess >= seconds)) return;
        least = bytes;
        seconds = excess;
      };
      for (int option = 0; option < model.options(first); ++option) {
        const std::int64_t need = model.chain_need(first, last, option);
        const double excess = model.excess(first, option);
        if (first == last) {
          offer(need, excess);
        } else {
          const std::size_t rest = index_(first + 1, last);
          offer(std::max(need, model.saved(first, option) + bytes_[rest]), excess + excess_[rest]);
        }
      }
      std::int64_t pass = 0;
      for (int j = first + 1; j <= last; ++j) {
        pass = std::max(pass, model.pass_need(first, j - 1));
        const std::size_t right = index_(j, last);
        const std::size_t left = index_(first, j - 1);
        offer(std::max({model.value(last + 1) + pass, model.value(j) + bytes_[right],
                        model.gradients(j, last) + bytes_[left]}),
              model.pass_seconds(first, j) + excess_[right] + excess_[left]);
      }
      bytes_[index_(first, last)] = least;
      excess_[index_(first, last)] = seconds;
    }
  }
}

}  // namespace garonne::plan
