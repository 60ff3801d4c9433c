// `garonne data inspect` and `garonne data statistics`.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_output.hpp"
#include "command.hpp"
#include "data/fields/field_inspect.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/tokens/foreign_tokens.hpp"
#include "data/tokens/token_file.hpp"

namespace garonne::apps {
namespace {

// Tokens: by their names those of other programs; ours say what they are in their attribute
// `format`, which files of fields, which others write, do not
// have, but for forecasts.
bool holds_tokens(const std::string& path) {
  if (data::find_foreign_tokens(path)) return true;
  if (!std::filesystem::is_regular_file(path)) return false;
  const data::Hdf5File file = data::Hdf5File::open(path);
  return file.has_attribute("format") && file.string_attribute("format") != "garonne.forecast";
}

std::shared_ptr<data::FieldQuery> add_query_options(CLI::App& command) {
  const auto query = std::make_shared<data::FieldQuery>();
  command.add_option("path", query->path, "a file, a folder, or a quoted pattern with *")
      ->required();
  command.add_option("--layout", query->layout, "auto, yearly, pdebench, well, netcdf or zarr")
      ->type_name("NAME")
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--period",
          [query](const std::string& text) {
            query->period = data::FieldPeriod::parse("--period", text);
          },
          "frames of these dates only, as 1860/1999")
      ->option_text("DATE/DATE");
  command.add_option("--channels", query->input_channels, "channels, comma-separated [all]")
      ->type_name("NAME")
      ->delimiter(',');
  command.add_option("--lead", query->lead, "frames from an input to its target")
      ->capture_default_str();
  return query;
}

void inspect_tokens(const std::string& path, bool verify, bool json) {
  const data::TokenFileInfo info = data::inspect_token_file(path);
  const std::int64_t largest =
      verify ? data::verify_token_file(path, /*show_progress=*/true) : std::int64_t{-1};
  if (json) {
    nlohmann::json facts = data::token_file_json(info);
    if (verify) facts["largest_token"] = largest;
    fmt::print("{}\n", json_text(facts, 2));
    return;
  }
  fmt::print("{}", data::describe(info));
  if (verify) {
    fmt::print("  read        all {} tokens{}; the largest is {}\n",
               info.tokens + info.validation_tokens,
               info.checksummed ? ", and their checksums fit" : "", largest);
  }
}

}  // namespace

void add_data_inspect(CLI::App& data, Chosen& chosen) {
  CLI::App* command =
      data.add_subcommand("inspect", "say what a tokens file, or files of fields, hold");
  const auto query = add_query_options(*command);
  const auto json = std::make_shared<bool>(false);
  const auto full = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON");
  command->add_flag(
      "--full,--verify", *full,
      "read every value: check the checksums of tokens; count missing values of fields");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "data inspect");
      if (holds_tokens(query->path)) {
        inspect_tokens(query->path, *full, *json);
        return ExitCode::Done;
      }
      data::FieldQuery lenient = *query;
      lenient.missing = "mask";  // to count what is not there
      lenient.windows = false;
      data::FieldDatasetInfo info = data::FieldDataset::open(lenient).info();
      data::count_stored_bytes(info);
      nlohmann::ordered_json facts = data::field_dataset_json(info);
      if (!*json) fmt::print("{}", data::describe(info));
      if (*full) {
        const data::FieldSummaries summaries =
            data::summarise_fields(lenient, /*pointwise=*/false, session, /*show_progress=*/true);
        facts["values"] = data::field_summaries_json(summaries);
        for (const std::string& text : data::statistics_warnings(summaries)) {
          if (*json || std::find(info.notes.begin(), info.notes.end(), text) == info.notes.end())
            fmt::print(stderr, "warning: {}\n", text);
        }
        if (!*json) {
          fmt::print("{}", data::describe(summaries, info.frames * info.plane(info.points[0])));
        }
      }
      if (*json) fmt::print("{}\n", json_text(facts, 2));
      return ExitCode::Done;
    };
  });
}

void add_data_statistics(CLI::App& data, Chosen& chosen) {
  CLI::App* command = data.add_subcommand(
      "statistics", "means and deviations of fields, for normalising them; ranks share the frames");
  const auto query = add_query_options(*command);
  const auto output = std::make_shared<std::string>();
  const auto pointwise = std::make_shared<bool>(false);
  const auto json = std::make_shared<bool>(false);
  command->add_option("--output", *output, "FILE.h5, or a folder for .npy files as makani has them")
      ->type_name("PATH");
  command->add_flag("--pointwise", *pointwise, "also at each point of the grid");
  command
      ->add_option("--missing", query->missing,
                   "what to do about missing values: refuse, or mask to leave them out")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      session.agree([&] {
        if (!output->empty()) data::expect_statistics_output(*output, {query->path});
      });
      const data::FieldSummaries summaries =
          data::summarise_fields(*query, *pointwise, session, /*show_progress=*/true);
      session.agree([&] {
        if (session.rank() != 0) return;
        for (const std::string& text : data::statistics_warnings(summaries)) {
          fmt::print(stderr, "warning: {}\n", text);
        }
        if (!output->empty()) data::save_field_summaries(*output, summaries);
        if (*json) {
          fmt::print("{}\n", json_text(data::field_summaries_json(summaries), 2));
        } else {
          fmt::print("{}", data::describe(summaries));
          if (!output->empty()) fmt::print("written to {}\n", *output);
        }
      });
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
