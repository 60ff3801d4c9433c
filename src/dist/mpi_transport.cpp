// The transport over MPI, between buffers of the host.
#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "base/error.hpp"
#include "dist/mpi_calls.hpp"
#include "dist/ordered_exchange.hpp"
#include "dist/session.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

constexpr std::int64_t largest_message = std::int64_t{1} << 30;
// Collective over the group; on the communication thread.
Communicator make_group(MPI_Comm world, const std::vector<int>& members) {
  MPI_Group everybody = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(world, &everybody), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(everybody, static_cast<int>(members.size()), members.data(), &group),
            "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(world, group, 0, &handle), "MPI_Comm_create_group");
  MPI_Group_free(&group);
  MPI_Group_free(&everybody);
  return Communicator(handle);
}

Communicator duplicate(const Communicator& communicator) {
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(communicator.handle(), &handle), "MPI_Comm_dup");
  return Communicator(handle);
}

// Calls `post(offset, bytes)` for the parts of a buffer that MPI can count.
void for_each_message(std::int64_t bytes, const std::function<void(std::int64_t, int)>& post) {
  for (std::int64_t offset = 0; offset < bytes; offset += largest_message) {
    post(offset, static_cast<int>(std::min(largest_message, bytes - offset)));
  }
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(Session& session, CommunicationThread& thread, std::vector<int> members)
      : Transport(std::move(members), session.rank()), thread_(thread) {
    thread_.run([&] {
      collectives_ = make_group(mpi_world(session).communicator(), this->members());
      messages_ = duplicate(collectives_);
    });
  }

  ~MpiTransport() override {
    try {
      // With an exception on its way nothing may ever become complete; the process is about to end.
      if (std::uncaught_exceptions() > 0) {
        collectives_.abandon();
        messages_.abandon();
        return;
      }
      thread_.run([this] {
        collectives_ = Communicator();
        messages_ = Communicator();
      });
    } catch (const std::exception&) {
      // The failure was, or will be, reported by whoever waits for an operation.
    }
  }

  std::string_view name() const override { return "mpi"; }

  Ticket all_reduce_sum(void* data, std::int64_t elements, SumType type, void* staging) override {
    expect_sum_type(type);
    return exchange(true, true, data, elements, scalar_bytes(type.kept), type, staging);
  }

  Ticket reduce_scatter_sum(void* data, std::int64_t elements, SumType type,
                            void* staging) override {
    expect_sum_type(type);
    return exchange(true, false, data, elements, scalar_bytes(type.kept), type, staging);
  }

  Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) override {
    expect(element_bytes > 0, "elements of an all-gather have bytes");
    return exchange(false, true, data, elements, element_bytes, ScalarType::Float32, nullptr);
  }

  Ticket broadcast(void* data, std::int64_t bytes, int root) override {
    expect(root >= 0 && root < size(), "the root of a broadcast is no member");
    const std::string what = "broadcast from " + who(root);
    return messages(what, data, bytes, [=, this](void* begin, int count, MPI_Request* request) {
      return MPI_Ibcast(begin, count, MPI_BYTE, root, collectives_.handle(), request);
    });
  }

  Ticket send(const void* data, std::int64_t bytes, int to, int tag) override {
    check_peer(to, tag);
    // MPI takes a const buffer; only the shared helper does not.
    return messages("send to " + who(to), const_cast<void*>(data), bytes,
                    [=, this](const void* begin, int count, MPI_Request* request) {
                      return MPI_Isend(begin, count, MPI_BYTE, to, tag, messages_.handle(),
                                       request);
                    });
  }

  Ticket receive(void* data, std::int64_t bytes, int from, int tag) override {
    check_peer(from, tag);
    return messages("receive from " + who(from), data, bytes,
                    [=, this](void* begin, int count, MPI_Request* request) {
                      return MPI_Irecv(begin, count, MPI_BYTE, from, tag, messages_.handle(),
                                       request);
                    });
  }

  void wait(Ticket ticket) override { thread_.wait(ticket); }
  bool done(Ticket ticket) override { return thread_.done(ticket); }

 private:
  std::string who(int member) const {
    return "rank " + std::to_string(members()[static_cast<std::size_t>(member)]);
  }

  void check_peer(int peer, int tag) const {
    expect(peer >= 0 && peer < size() && peer != member(), "a message goes to another member");
    expect(tag >= 0 && tag <= most_tag, "a tag lies between 0 and 32767");
  }

  template <typename Post>
  Ticket messages(std::string what, void* data, std::int64_t bytes, Post post) {
    auto post_all = [=](std::vector<MPI_Request>& requests) {
      for_each_message(bytes, [&](std::int64_t offset, int count) {
        check_mpi(post(static_cast<std::byte*>(data) + offset, count, &requests.emplace_back()),
                  what);
      });
    };
    return thread_.submit(std::make_unique<Requests>(what, std::move(post_all)));
  }

  Ticket exchange(bool reduce, bool gather, void* data, std::int64_t elements,
                  std::int64_t element_bytes, SumType type, void* staging) {
    expect(elements >= 0, "a collective has no fewer than zero elements");
    expect(elements == 0 || (data && (!reduce || staging)), "a collective lacks a buffer");
    // Second halves start when their data is there, so in no fixed order: operations that may be in
    // flight together have tags of their own.
    const int tag = 2 * static_cast<int>(sequence_++ % (most_tag / 2));
    return thread_.submit(std::make_unique<OrderedExchange>(ExchangeOrder{
        .communicator = collectives_.handle(),
        .tag = tag,
        .members = size(),
        .member = member(),
        .reduce = reduce,
        .gather = gather,
        .data = static_cast<std::byte*>(data),
        .elements = elements,
        .element_bytes = element_bytes,
        .type = type,
        .staging = static_cast<std::byte*>(staging),
    }));
  }

  CommunicationThread& thread_;
  Communicator collectives_;
  Communicator messages_;
  std::uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(Session& session, CommunicationThread& thread,
                                              std::vector<int> members) {
  return std::make_unique<MpiTransport>(session, thread, std::move(members));
}

}  // namespace garonne::dist
