#include "dist/mpi_calls.hpp"

#include <array>
#include <utility>

#include "base/error.hpp"
#include "dist/session.hpp"

namespace garonne::dist {

void check_mpi(int code, const std::string& operation) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommunicationError(operation, std::string(text.data(), static_cast<std::size_t>(length)));
}

Communicator::Communicator(MPI_Comm handle) : handle_(handle) {
  if (handle_ != MPI_COMM_NULL) MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN);
}

Communicator::Communicator(Communicator&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(handle_, other.handle_);
  Communicator old(std::move(other));
  return *this;
}

Communicator::~Communicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (handle_ != MPI_COMM_NULL && !finalized) MPI_Comm_free(&handle_);
}

const MpiWorld& mpi_world(const Session& session) {
  expect(session.world_ != nullptr, "this session runs without MPI");
  return *session.world_;
}

Advance Requests::advance() {
  int all_done = 0;
  check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all_done,
                        MPI_STATUSES_IGNORE),
            name_);
  return all_done ? Advance::Done : Advance::None;
}

}  // namespace garonne::dist
