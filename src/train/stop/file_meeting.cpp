#include "train/stop/file_meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/awake_time.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::milliseconds poll{10};
// It may ask the file system for everything in a folder.
constexpr std::chrono::milliseconds news_every{500};

}  // namespace

FileMeeting::FileMeeting(std::string folder, int member, int members,
                         std::chrono::milliseconds patience, std::function<std::int64_t()> news)
    : folder_(std::move(folder)),
      member_(member),
      members_(members),
      patience_(patience),
      news_(std::move(news)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw IoError(folder_, "cannot be made: " + error.message());
}

void FileMeeting::put(const std::string& name, const std::string& text) const {
  // Whole as soon as it is there. Nothing has to outlive a crash of the machine.
  const std::string partial = path(name + ".partial");
  FileWriter file(partial);
  file.write(text.data(), text.size());
  file.finish();
  std::error_code error;
  fs::rename(partial, path(name), error);
  if (error) throw IoError(path(name), "cannot be renamed into place: " + error.message());
}

std::string FileMeeting::wait_for(const std::string& name) const {
  AwakeTime silent;
  AwakeTime unasked;
  std::int64_t last = news_();
  std::error_code error;
  while (!fs::exists(path(name), error)) {
    std::this_thread::sleep_for(poll);
    if (unasked.passed() >= std::min(news_every, patience_ / 2)) {
      unasked.restart();
      if (const std::int64_t now = news_(); now != last) {
        last = now;
        silent.restart();
      }
    }
    if (silent.passed() > patience_)
      throw IoError(path(name), "did not appear: another rank is gone");
  }
  return read_text_file(path(name));
}

void FileMeeting::phase(const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const Error& error) {
    failure = error.what();
  }
  const int number = number_++;
  const std::string verdict = fmt::format("phase-{}", number);
  const auto of = [&](int member) { return fmt::format("phase-{}-rank-{}", number, member); };
  if (member_ == 0) {
    for (int member = 1; member < members_; ++member) {
      const std::string theirs = wait_for(of(member));
      if (failure.empty()) failure = theirs;
    }
    put(verdict, failure);
  } else {
    put(of(member_), failure);
    failure = wait_for(verdict);
  }
  if (!failure.empty()) throw Error(ExitCode::Data, failure);
}

std::vector<std::string> FileMeeting::gather(const std::string& text) {
  const int number = number_++;
  const auto of = [&](int member) { return fmt::format("text-{}-rank-{}", number, member); };
  if (member_ != 0) {
    put(of(member_), text);
    return {};
  }
  std::vector<std::string> texts{text};
  for (int member = 1; member < members_; ++member) texts.push_back(wait_for(of(member)));
  return texts;
}

std::string FileMeeting::first_text(const std::string& text) {
  const std::vector<std::string> texts = gather(text);
  const std::string answer = fmt::format("answer-{}", number_++);
  if (member_ != 0) return wait_for(answer);
  const auto found =
      std::find_if(texts.begin(), texts.end(), [](const auto& one) { return !one.empty(); });
  const std::string first = found == texts.end() ? std::string() : *found;
  put(answer, first);
  return first;
}

void FileMeeting::leave() {
  const auto of = [](int member) { return fmt::format("left-rank-{}", member); };
  if (member_ != 0) {
    put(of(member_), "");
    return;
  }
  for (int member = 1; member < members_; ++member) wait_for(of(member));
  std::error_code error;
  fs::remove_all(folder_, error);
}

}  // namespace garonne::train
