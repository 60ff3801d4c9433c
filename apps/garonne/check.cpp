#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "command.hpp"
#include "train/plans/saved_programs.hpp"

namespace garonne::apps {
namespace {

// Of a run directory the folder that its Programs are in.
std::string folder_of_programs(const std::string& given) {
  const auto inside = std::filesystem::path(given) / "program";
  std::error_code error;
  return std::filesystem::is_directory(inside, error) ? inside.string() : given;
}

}  // namespace

void add_check(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "check",
      "prove that saved Programs are legal, by replay, the order of their lanes and what buffers "
      "hold");
  const auto folder = std::make_shared<std::string>();
  command
      ->add_option("folder", *folder,
                   "run directory, or a folder of `plan --program` (rank_<n>.json)")
      ->required();
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "check");
      const train::SavedPrograms saved = train::read_saved_programs(folder_of_programs(*folder));
      fmt::print("{}", train::check_saved_programs(saved));
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
