// The transport of a rank that has no peers: everything is complete at once.
#include <utility>

#include "base/error.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

class SelfTransport final : public Transport {
 public:
  SelfTransport(std::vector<int> members, int rank) : Transport(std::move(members), rank) {
    expect(size() == 1, "the transport \"self\" is for groups of one");
  }

  std::string_view name() const override { return "self"; }
  Ticket all_reduce_sum(void*, std::int64_t, SumType, void*) override { return {}; }
  Ticket reduce_scatter_sum(void*, std::int64_t, SumType, void*) override { return {}; }
  Ticket all_gather(void*, std::int64_t, std::int64_t) override { return {}; }
  Ticket broadcast(void*, std::int64_t, int root) override {
    expect(root == 0, "the root of a broadcast is no member");
    return {};
  }
  Ticket send(const void*, std::int64_t, int, int) override { throw InternalError(no_peer); }
  Ticket receive(void*, std::int64_t, int, int) override { throw InternalError(no_peer); }
  void wait(Ticket) override {}
  bool done(Ticket) override { return true; }

 private:
  static constexpr const char* no_peer = "a group of one has nobody to send to";
};

}  // namespace

std::unique_ptr<Transport> make_self_transport(std::vector<int> members, int rank) {
  return std::make_unique<SelfTransport>(std::move(members), rank);
}

}  // namespace garonne::dist
