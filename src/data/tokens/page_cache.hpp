// The pages of a file that were used last.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

namespace garonne::data {

template <typename Page>
class PageCache {
 public:
  // At least two, else as many pages as `capacity_bytes` hold.
  PageCache(std::int64_t capacity_bytes, std::int64_t page_bytes)
      : limit_(static_cast<std::size_t>(std::max<std::int64_t>(2, capacity_bytes / page_bytes))) {}

  // The page of this number; one that is not here is filled by `fill(page)`, where the memory of
  // the page used longest ago serves again.
  template <typename Fill>
  const Page& get(std::int64_t number, Fill fill) {
    const auto known = by_number_.find(number);
    if (known != by_number_.end()) {
      pages_.splice(pages_.begin(), pages_, known->second);
      return pages_.front().second;
    }
    Page fresh;
    if (pages_.size() >= limit_) {
      by_number_.erase(pages_.back().first);
      fresh = std::move(pages_.back().second);
      pages_.pop_back();
    }
    fill(fresh);
    pages_.emplace_front(number, std::move(fresh));
    by_number_[number] = pages_.begin();
    return pages_.front().second;
  }

 private:
  using Pages = std::list<std::pair<std::int64_t, Page>>;
  std::size_t limit_;
  Pages pages_;  // used last first
  std::unordered_map<std::int64_t, typename Pages::iterator> by_number_;
};

}  // namespace garonne::data
