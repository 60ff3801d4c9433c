#include "dist/side_channel.hpp"

#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "dist/mpi_calls.hpp"
#include "dist/session.hpp"

namespace garonne::dist {

SideChannel::SideChannel(Session& session)
    : size_(session.size()), exceptions_at_start_(std::uncaught_exceptions()) {
  if (!session.uses_mpi()) return;
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(mpi_world(session).communicator(), &handle), "MPI_Comm_dup");
  communicator_ = std::make_unique<Communicator>(handle);
}

SideChannel::~SideChannel() {
  if (communicator_ && (given_up_ || std::uncaught_exceptions() > exceptions_at_start_))
    communicator_->abandon();
}

std::optional<std::vector<std::int64_t>> SideChannel::all_gather(
    std::int64_t mine, const std::function<bool()>& give_up) {
  expect(!given_up_, "an exchange after one that was given up");
  if (!communicator_) return std::vector<std::int64_t>{mine};
  struct Buffers {
    std::int64_t mine = 0;
    std::vector<std::int64_t> all;
  };
  auto buffers = std::make_unique<Buffers>();
  buffers->mine = mine;
  buffers->all.resize(static_cast<std::size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&buffers->mine, 1, MPI_INT64_T, buffers->all.data(), 1, MPI_INT64_T,
                           communicator_->handle(), &request),
            "all-gather on the side");
  for (;;) {
    int complete = 0;
    check_mpi(MPI_Test(&request, &complete, MPI_STATUS_IGNORE), "all-gather on the side");
    if (complete != 0) return std::move(buffers->all);
    if (give_up()) {
      given_up_ = true;
      (void)buffers.release();  // MPI still knows them; the process is about to end
      return std::nullopt;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace garonne::dist
