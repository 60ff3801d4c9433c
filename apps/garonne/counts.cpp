#include "counts.hpp"

#include <cmath>
#include <string>

namespace garonne::apps {

void expect_finite_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // What CLI11 calls all floating-point values, lists and optional ones too; checks stand behind.
    if (option->get_type_name().rfind("FLOAT", 0) != 0) continue;
    option->check([](const std::string& text) {
      double number = 0;
      // What is no number at all is refused where it is converted.
      const bool other = CLI::detail::lexical_cast(text, number) && !std::isfinite(number);
      return other ? text + not_finite : std::string();
    });
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    expect_finite_numbers(*command);
}

}  // namespace garonne::apps
