#include "train/run/run_tokenizer.hpp"

#include "base/file.hpp"

namespace garonne::train {

void save_tokenizer(const std::string& run_directory, const data::Tokenizer& tokenizer) {
  if (tokenizer.description().empty()) return;
  write_file_durably(run_directory + "/" + data::tokenizer_file(tokenizer.name()),
                     tokenizer.description());
}

std::unique_ptr<data::Tokenizer> tokenizer_of_run(const std::string& run_directory,
                                                  const std::string& name,
                                                  const std::string& given) {
  if (!given.empty()) return data::open_tokenizer(given);
  if (!data::is_known_tokenizer(name)) return nullptr;
  const std::string file = data::tokenizer_file(name);
  if (file.empty()) return data::make_tokenizer(name);
  const std::string path = run_directory + "/" + file;
  return data::make_tokenizer(name, read_text_file(path), path);
}

}  // namespace garonne::train
