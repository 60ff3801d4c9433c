#include "cluster_output.hpp"

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/output_file.hpp"

namespace garonne::apps {

void expect_cluster_output(dist::Session& session, const std::string& output,
                           const std::string& command, const std::vector<std::string>& inputs) {
  session.agree([&] {
    if (session.rank() != 0 || output.empty()) return;
    expect_output("--output", output,
                  text_output(fmt::format("a cluster file that `garonne {}` measured", command),
                              fmt::format("measured by `garonne {}`", command)),
                  inputs);
  });
}

void write_cluster(dist::Session& session, const std::string& output,
                   const plan::Cluster& cluster) {
  session.agree([&] {
    if (session.rank() == 0 && !output.empty()) write_file_durably(output, plan::to_toml(cluster));
  });
}

}  // namespace garonne::apps
