#include "data/generate/shared_work.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/progress.hpp"

namespace garonne::data {
namespace {

// Of a gather on rank 0: below MPI's limit of 2 GiB a message.
constexpr std::size_t gathered_bytes = 256U << 20;

std::string pack(const MadeSample& sample) {
  const std::uint64_t facts = sample.facts.size();
  const std::size_t fact_bytes = facts * sizeof(double);
  const std::size_t value_bytes = sample.values.size() * sizeof(float);
  std::string bytes(sizeof facts + fact_bytes + value_bytes, '\0');
  std::memcpy(bytes.data(), &facts, sizeof facts);
  if (fact_bytes > 0) std::memcpy(bytes.data() + sizeof facts, sample.facts.data(), fact_bytes);
  if (value_bytes > 0) {
    std::memcpy(bytes.data() + sizeof facts + fact_bytes, sample.values.data(), value_bytes);
  }
  return bytes;
}

MadeSample unpack(const std::string& bytes) {
  std::uint64_t facts = 0;
  expect(bytes.size() >= sizeof facts, "a gathered sample is too short");
  std::memcpy(&facts, bytes.data(), sizeof facts);
  const std::size_t fact_bytes = facts * sizeof(double);
  expect(bytes.size() >= sizeof facts + fact_bytes, "a gathered sample is too short");
  const std::size_t value_bytes = bytes.size() - sizeof facts - fact_bytes;
  MadeSample sample{std::vector<float>(value_bytes / sizeof(float)), std::vector<double>(facts)};
  if (fact_bytes > 0) std::memcpy(sample.facts.data(), bytes.data() + sizeof facts, fact_bytes);
  if (value_bytes > 0) {
    std::memcpy(sample.values.data(), bytes.data() + sizeof facts + fact_bytes, value_bytes);
  }
  return sample;
}

}  // namespace

std::vector<std::string> gather_long(dist::Session& session, const std::string& bytes) {
  const std::size_t piece =
      std::max<std::size_t>(1, gathered_bytes / static_cast<std::size_t>(session.size()));
  const std::int64_t pieces = session.all_reduce_max(
      std::vector{static_cast<std::int64_t>((bytes.size() + piece - 1) / piece)})[0];
  std::vector<std::string> whole(session.rank() == 0 ? static_cast<std::size_t>(session.size())
                                                     : 0);
  for (std::int64_t index = 0; index < pieces; ++index) {
    const std::size_t begin = std::min(bytes.size(), static_cast<std::size_t>(index) * piece);
    const auto parts = session.gather(bytes.substr(begin, piece));
    for (std::size_t rank = 0; rank < parts.size(); ++rank) whole[rank] += parts[rank];
  }
  return whole;
}

void make_and_take(dist::Session& session, const std::string& label, bool show_progress,
                   std::int64_t count, const std::function<MadeSample(std::int64_t)>& make,
                   const std::function<void(std::int64_t, const MadeSample&)>& take) {
  Progress progress(label, count, !show_progress || session.rank() != 0);
  progress.advance_to(0);
  if (session.size() == 1) {
    for (std::int64_t sample = 0; sample < count; ++sample) {
      take(sample, make(sample));
      progress.advance_to(sample + 1);
    }
    return;
  }
  for (std::int64_t first = 0; first < count; first += session.size()) {
    const std::int64_t mine = first + session.rank();
    const auto gathered = gather_long(session, mine < count ? pack(make(mine)) : std::string());
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
      const std::int64_t sample = first + static_cast<std::int64_t>(rank);
      if (sample < count) take(sample, unpack(gathered[rank]));
    }
    progress.advance_to(std::min<std::int64_t>(first + session.size(), count));
  }
}

}  // namespace garonne::data
