// Runs a fuzz target without libFuzzer: every file of a folder, then so many inputs that are made
// of them by seeded random changes.
//   fuzz_NAME FOLDER [--runs N] [--seed S]
//   fuzz_NAME --input FILE      that file alone
// What a target ends with is the end of the process; the input is then in crash-NAME. A target that
// brings a mutator of its own is given changes of that.
#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "fuzz/fuzz_target.hpp"

extern "C" {
// The interface of libFuzzer: of a target, if it has one, and what its driver offers it.
__attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                                          std::size_t most, unsigned seed);
std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);
}

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t most_bytes = 1 << 17;

Input current;
std::vector<Input> corpus;
std::mt19937_64 random_numbers;
std::string crash_name;

// Of a signal handler: only what may be called there.
void keep_input(int signal) {
  const int file = ::open(crash_name.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file >= 0 && ::write(file, current.data(), current.size()) >= 0) ::close(file);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// One change of a kind that readers of texts and of binary files stumble over.
void change(Input& input, std::mt19937_64& random) {
  static const std::vector<std::string> words = {"-1",
                                                 "0",
                                                 "1",
                                                 "9223372036854775807",
                                                 "-9223372036854775808",
                                                 "18446744073709551616",
                                                 "1e308",
                                                 "1e-400",
                                                 "NaN",
                                                 "null",
                                                 "true",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "[[[[",
                                                 "\"\\u0000\"",
                                                 "\xff",
                                                 "=",
                                                 "\n",
                                                 ",",
                                                 "..",
                                                 "/"};
  const auto below = [&](std::size_t count) {
    return static_cast<std::ptrdiff_t>(random() % std::max<std::size_t>(1, count));
  };
  const auto at = [&] { return input.begin() + below(input.size() + 1); };
  switch (random() % 7) {
    case 0:
      if (!input.empty())
        input[static_cast<std::size_t>(below(input.size()))] = static_cast<std::uint8_t>(random());
      return;
    case 1:
      if (!input.empty())
        input[static_cast<std::size_t>(below(input.size()))] ^=
            static_cast<std::uint8_t>(1U << random() % 8);
      return;
    case 2: {  // without a part
      const auto first = at();
      input.erase(first, first + below(std::min<std::size_t>(
                                     64, static_cast<std::size_t>(input.end() - first) + 1)));
      return;
    }
    case 3: {  // a part twice
      if (input.empty()) return;
      const auto first = below(input.size());
      const auto length =
          below(std::min<std::size_t>(256, input.size() - static_cast<std::size_t>(first)) + 1);
      const Input part(input.begin() + first, input.begin() + first + length);
      input.insert(at(), part.begin(), part.end());
      return;
    }
    case 4: {  // a word for another, or for a number
      const std::string& word = words[static_cast<std::size_t>(below(words.size()))];
      auto first = at();
      auto last = first;
      while (last != input.end() && std::isalnum(*last) != 0) ++last;
      first = input.erase(first, last);
      input.insert(first, word.begin(), word.end());
      return;
    }
    case 5: {  // the end of another one
      const Input& other = corpus[static_cast<std::size_t>(below(corpus.size()))];
      input.erase(at(), input.end());
      input.insert(input.end(), other.begin() + below(other.size() + 1), other.end());
      return;
    }
    default:
      input.erase(at(), input.end());
  }
}

void change_by_target(Input& input) {
  const std::size_t size = input.size();
  input.resize(most_bytes);
  input.resize(LLVMFuzzerCustomMutator(input.data(), size, most_bytes,
                                       static_cast<unsigned>(random_numbers())));
}

}  // namespace

std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most) {
  Input input(data, data + size);
  change(input, random_numbers);
  input.resize(std::min(input.size(), most));
  std::copy(input.begin(), input.end(), data);
  return input.size();
}

int main(int count, char** arguments) {
  if (count < 2) return 2;
  if (count == 3 && std::strcmp(arguments[1], "--input") == 0) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(arguments[2], error)) {
      std::fprintf(stderr, "%s is no file\n", arguments[2]);
      return 2;
    }
    const Input input = read_file(arguments[2]);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    std::printf("%zu bytes: no finding\n", input.size());
    return 0;
  }
  std::uint64_t runs = 0;
  std::uint64_t seed = 1;
  for (int k = 2; k + 1 < count; k += 2) {
    if (std::strcmp(arguments[k], "--runs") == 0)
      runs = std::stoull(arguments[k + 1]);
    else if (std::strcmp(arguments[k], "--seed") == 0)
      seed = std::stoull(arguments[k + 1]);
    else
      return 2;
  }
  crash_name = "crash-" + std::filesystem::path(arguments[0]).filename().string();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, keep_input);
  std::vector<std::filesystem::path> paths;
  for (const auto& file : std::filesystem::directory_iterator(arguments[1]))
    paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) corpus.push_back(current = read_file(path));
  for (const Input& input : corpus) {
    current = input;
    LLVMFuzzerTestOneInput(current.data(), current.size());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s has no inputs\n", arguments[1]);
    return 2;
  }
  random_numbers.seed(seed);
  for (std::uint64_t run = 0; run < runs; ++run) {
    current = corpus[random_numbers() % corpus.size()];
    for (std::uint64_t changes = 1 + random_numbers() % 4; changes > 0; --changes)
      LLVMFuzzerCustomMutator != nullptr ? change_by_target(current)
                                         : change(current, random_numbers);
    LLVMFuzzerTestOneInput(current.data(), current.size());
  }
  std::printf("%zu files, %llu changed inputs: no finding\n", corpus.size(),
              static_cast<unsigned long long>(runs));
  return 0;
}
