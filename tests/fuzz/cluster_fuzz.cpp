// Cluster files.
#include "fuzz/fuzz_target.hpp"
#include "plan/model/cluster.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const plan::Cluster cluster =
        plan::parse_cluster(std::string(fuzz::text_of(data, size)), "input");
    fuzz::hold(cluster.devices_per_node >= 1 && cluster.nodes >= 1, "a cluster has devices");
    fuzz::hold(cluster.reserved_bytes < cluster.memory_bytes, "a device has memory");
  });
}
