// The one header of the room that shows mpi.h. For the room's own use.
#pragma once

// The C++ bindings that old MPI libraries add would need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <functional>
#include <string>
#include <vector>

#include "dist/pending_operation.hpp"

namespace garonne::dist {

class Session;

// Throws CommunicationError with the operation and MPI's reason unless `code` is MPI_SUCCESS.
void check_mpi(int code, const std::string& operation);

// A communicator of ours, with errors returned; freed where MPI still runs.
class Communicator {
 public:
  Communicator() = default;
  explicit Communicator(MPI_Comm handle);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();

  MPI_Comm handle() const { return handle_; }
  // Leaves it to MPI: for an end where the other members may be gone.
  void abandon() { handle_ = MPI_COMM_NULL; }

 private:
  MPI_Comm handle_ = MPI_COMM_NULL;
};

// What a session holds of MPI: whether it has to finalise it, and a copy of the world, so that
// nobody else's messages meet ours.
class MpiWorld {
 public:
  MpiWorld(Communicator communicator, bool owns_mpi)
      : communicator_(std::move(communicator)), owns_mpi_(owns_mpi) {}

  MPI_Comm communicator() const { return communicator_.handle(); }
  bool owns_mpi() const { return owns_mpi_; }
  void free() { communicator_ = Communicator(); }

 private:
  Communicator communicator_;
  bool owns_mpi_;
};

// Throws InternalError for a session without MPI.
const MpiWorld& mpi_world(const Session& session);

// An operation that is over when all the requests that `post` made are complete.
class Requests : public PendingOperation {
 public:
  // `name` is for error messages. `post` appends to the vector it is given.
  Requests(std::string name, std::function<void(std::vector<MPI_Request>&)> post)
      : name_(std::move(name)), post_(std::move(post)) {}

  void start() override { post_(requests_); }
  Advance advance() override;

 private:
  std::string name_;
  std::function<void(std::vector<MPI_Request>&)> post_;
  std::vector<MPI_Request> requests_;
};

}  // namespace garonne::dist
