// The small collectives on host values, and agreement on errors.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/hash.hpp"
#include "dist/communication_thread.hpp"
#include "dist/mpi_calls.hpp"
#include "dist/session.hpp"

namespace garonne::dist {
namespace {

int mpi_count(std::size_t bytes, const char* operation) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw CommunicationError(operation, "more than 2 GiB in one message");
  }
  return static_cast<int>(bytes);
}

// One vector a rank lies behind the other in `all`; the first rank's is combined with the next, and
// so on.
template <typename Value, typename Combine>
std::vector<Value> combine_in_rank_order(const std::vector<Value>& all, int ranks,
                                         Combine combine) {
  const std::size_t length = all.size() / static_cast<std::size_t>(ranks);
  std::vector<Value> result(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(length));
  for (std::size_t index = length; index < all.size(); ++index) {
    Value& target = result[index % length];
    target = combine(target, all[index]);
  }
  return result;
}

template <typename Value>
Value larger(Value left, Value right) {
  return std::max(left, right);
}

template <typename Value>
Value smaller(Value left, Value right) {
  return std::min(left, right);
}

template <typename Value>
Value sum(Value left, Value right) {
  return left + right;
}

struct Caught {
  ExitCode code = ExitCode::Done;
  std::string message;
  std::int64_t needed_bytes = 0;
};

std::optional<Caught> run_phase(const std::function<void()>& phase) {
  const auto agreeable = [](const Error& error) {
    return error.code() == ExitCode::Usage || error.code() == ExitCode::Infeasible ||
           error.code() == ExitCode::Data;
  };
  try {
    phase();
  } catch (const PlanError& error) {
    return Caught{error.code(), error.what(), error.needed_bytes()};
  } catch (const Error& error) {
    if (!agreeable(error)) throw;
    return Caught{error.code(), error.what(), 0};
  }
  return std::nullopt;
}

}  // namespace

void Session::barrier() {
  if (!world_) return;
  carry_out(std::make_unique<Requests>("barrier", [this](std::vector<MPI_Request>& requests) {
    check_mpi(MPI_Ibarrier(world_->communicator(), &requests.emplace_back()), "barrier");
  }));
}

void Session::broadcast_bytes(void* data, std::size_t bytes, int root) {
  if (!world_) return;
  const int count = mpi_count(bytes, "broadcast");
  carry_out(std::make_unique<Requests>("broadcast", [=, this](std::vector<MPI_Request>& requests) {
    check_mpi(
        MPI_Ibcast(data, count, MPI_BYTE, root, world_->communicator(), &requests.emplace_back()),
        "broadcast from rank " + std::to_string(root));
  }));
}

void Session::all_gather_bytes(const void* mine, void* all, std::size_t bytes_each) {
  if (!world_) {
    std::memcpy(all, mine, bytes_each);
    return;
  }
  const int count = mpi_count(bytes_each, "all-gather");
  carry_out(std::make_unique<Requests>("all-gather", [=, this](std::vector<MPI_Request>& requests) {
    check_mpi(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, world_->communicator(),
                             &requests.emplace_back()),
              "all-gather");
  }));
}

std::string Session::broadcast(const std::string& text, int root) {
  expect(root >= 0 && root < size_, "the root of a broadcast is no rank");
  std::uint64_t length = text.size();
  broadcast_bytes(&length, sizeof length, root);
  std::string result = rank_ == root ? text : std::string(length, '\0');
  if (length > 0) broadcast_bytes(result.data(), length, root);
  return result;
}

std::vector<std::int64_t> Session::all_gather(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> all(values.size() * static_cast<std::size_t>(size_));
  if (!values.empty())
    all_gather_bytes(values.data(), all.data(), values.size() * sizeof values[0]);
  return all;
}

std::vector<double> Session::all_gather(const std::vector<double>& values) {
  std::vector<double> all(values.size() * static_cast<std::size_t>(size_));
  if (!values.empty())
    all_gather_bytes(values.data(), all.data(), values.size() * sizeof values[0]);
  return all;
}

std::vector<std::int64_t> Session::all_reduce_max(const std::vector<std::int64_t>& values) {
  return combine_in_rank_order(all_gather(values), size_, larger<std::int64_t>);
}

std::vector<std::int64_t> Session::all_reduce_min(const std::vector<std::int64_t>& values) {
  return combine_in_rank_order(all_gather(values), size_, smaller<std::int64_t>);
}

std::vector<std::int64_t> Session::all_reduce_sum(const std::vector<std::int64_t>& values) {
  return combine_in_rank_order(all_gather(values), size_, sum<std::int64_t>);
}

std::vector<double> Session::all_reduce_max(const std::vector<double>& values) {
  return combine_in_rank_order(all_gather(values), size_, larger<double>);
}

std::vector<double> Session::all_reduce_min(const std::vector<double>& values) {
  return combine_in_rank_order(all_gather(values), size_, smaller<double>);
}

std::vector<double> Session::all_reduce_sum(const std::vector<double>& values) {
  return combine_in_rank_order(all_gather(values), size_, sum<double>);
}

std::vector<std::string> Session::gather(const std::string& text) {
  if (!world_) return {text};
  const std::vector<std::int64_t> mine{static_cast<std::int64_t>(text.size())};
  const std::vector<std::int64_t> lengths = all_gather(mine);
  std::vector<int> counts;
  std::vector<int> offsets;
  std::size_t total = 0;
  for (const std::int64_t length : lengths) {
    counts.push_back(mpi_count(static_cast<std::size_t>(length), "gather"));
    offsets.push_back(mpi_count(total, "gather"));
    total += static_cast<std::size_t>(length);
  }
  std::string all(rank_ == 0 ? total : 0, '\0');
  carry_out(std::make_unique<Requests>("gather", [&](std::vector<MPI_Request>& requests) {
    check_mpi(MPI_Igatherv(text.data(), counts[static_cast<std::size_t>(rank_)], MPI_BYTE,
                           all.data(), counts.data(), offsets.data(), MPI_BYTE, 0,
                           world_->communicator(), &requests.emplace_back()),
              "gather to rank 0");
  }));
  std::vector<std::string> texts;
  if (rank_ != 0) return texts;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    texts.push_back(all.substr(static_cast<std::size_t>(offsets[rank]),
                               static_cast<std::size_t>(counts[rank])));
  }
  return texts;
}

bool Session::all_agree(std::string_view text) {
  const std::string mine = hash_text(text);
  std::string all(mine.size() * static_cast<std::size_t>(size_), '\0');
  all_gather_bytes(mine.data(), all.data(), mine.size());
  for (std::size_t begin = 0; begin < all.size(); begin += mine.size()) {
    // With the first rank's, not with this one's: all ranks have to come to the same answer.
    if (all.compare(begin, mine.size(), all, 0, mine.size()) != 0) return false;
  }
  return true;
}

void Session::agree(const std::function<void()>& phase) {
  const Caught mine = run_phase(phase).value_or(Caught{});
  const std::vector<std::int64_t> code_and_need{static_cast<std::int64_t>(mine.code),
                                                mine.needed_bytes};
  const std::vector<std::int64_t> all = all_gather(code_and_need);
  const auto code_of = [&](int rank) {
    return static_cast<ExitCode>(all[2 * static_cast<std::size_t>(rank)]);
  };
  const auto need_of = [&](int rank) { return all[2 * static_cast<std::size_t>(rank) + 1]; };

  int chosen = 0;
  while (chosen < size_ && code_of(chosen) == ExitCode::Done) ++chosen;
  if (chosen == size_) return;
  bool alike = true;
  const ExitCode code = code_of(chosen);
  for (int rank = 0; rank < size_; ++rank) {
    alike = alike && code_of(rank) == code;
    // The budget that the message asks for has to be enough for all.
    const bool needs_more = code_of(rank) == code && need_of(rank) > need_of(chosen);
    if (code == ExitCode::Infeasible && needs_more) chosen = rank;
  }
  const std::string speaker =
      alike ? std::string() : "on rank " + std::to_string(chosen) + " (" + host_ + "): ";
  const std::string message = broadcast(speaker + mine.message, chosen);
  // All ranks go on to finalise MPI: nothing may be in flight then.
  if (thread_) thread_->run([] {});
  throw AgreedError(code, message);
}

}  // namespace garonne::dist
