#include "dist/transport.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "dist/nccl_memory.hpp"
#include "dist/nccl_transport.hpp"
#include "dist/session.hpp"
#include "dist/sum_order.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Transport> (*make)(Session&, CommunicationThread&, std::vector<int>,
                                     const TransportOptions&);
};

std::unique_ptr<Transport> self(Session& session, CommunicationThread&, std::vector<int> members,
                                const TransportOptions&) {
  return make_self_transport(std::move(members), session.rank());
}

std::unique_ptr<Transport> mpi(Session& session, CommunicationThread& thread,
                               std::vector<int> members, const TransportOptions& options) {
  if (members.size() == 1) return make_self_transport(std::move(members), session.rank());
  auto host = make_mpi_transport(session, thread, std::move(members));
  if (options.side == nullptr) return host;
  return make_staged_transport(std::move(host), session, options);
}

std::unique_ptr<Transport> nccl(Session& session, CommunicationThread& thread,
                                std::vector<int> members, const TransportOptions& options) {
  if (members.size() == 1) return make_self_transport(std::move(members), session.rank());
  return std::make_unique<NcclTransport>(session, thread, std::move(members), options,
                                         NcclParts::built_in());
}

constexpr std::array registry{
    Entry{"self", self},
    Entry{"mpi", mpi},
    Entry{"nccl", nccl},
};

}  // namespace

Transport::Transport(std::vector<int> members, int rank) : members_(std::move(members)) {
  const auto place = std::find(members_.begin(), members_.end(), rank);
  expect(place != members_.end(), "a transport is made by a member of its group");
  const std::set<int> distinct(members_.begin(), members_.end());
  expect(distinct.size() == members_.size(), "a group names a rank once");
  member_ = static_cast<int>(place - members_.begin());
}

void Transport::expect_sum_type(SumType type) {
  expect(!type.narrows() || (type.kept == ScalarType::Float32 && type.wire == ScalarType::BFloat16),
         "a sum travels as it is kept, or in bfloat16 where that is float32");
}

SumOrder Transport::sum_order() const {
  return flat_order(size());
}

void Transport::begin_recording() {
  throw InternalError(std::string(name()) + " records no operations");
}

void Transport::end_recording() {
  throw InternalError(std::string(name()) + " records no operations");
}

void Transport::drop_recording() {
  throw InternalError(std::string(name()) + " records no operations");
}

void Transport::begin_replay(const std::string& activity, double) {
  throw InternalError(std::string(name()) + " carries no recorded operations out: " + activity);
}

void Transport::end_replay() {
  throw InternalError(std::string(name()) + " carries no recorded operations out");
}

std::vector<std::string> transport_names() {
  std::vector<std::string> names;
  for (const Entry& entry : registry) names.emplace_back(entry.name);
  return names;
}

std::unique_ptr<Transport> make_number_transport(std::string_view name, Session& session,
                                                 CommunicationThread& thread,
                                                 std::vector<int> members,
                                                 const TransportOptions& options) {
  if (name != "nccl" || members.size() == 1)
    return make_transport(name, session, thread, std::move(members), options);
  NcclParts parts = NcclParts::built_in();
  parts.channels = nccl_world_channels;
  return std::make_unique<NcclTransport>(session, thread, std::move(members), options,
                                         std::move(parts));
}

std::unique_ptr<Transport> make_transport(std::string_view name, Session& session,
                                          CommunicationThread& thread, std::vector<int> members,
                                          const TransportOptions& options) {
  for (const Entry& entry : registry) {
    if (name == entry.name) return entry.make(session, thread, std::move(members), options);
  }
  std::string known;
  for (const Entry& entry : registry) known += std::string(known.empty() ? "" : ", ") + entry.name;
  throw ConfigError("grid.transport", std::string(name),
                    "there is no such transport; there are " + known);
}

}  // namespace garonne::dist
