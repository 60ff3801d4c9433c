#include "plan/program/trained_contents.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "plan/program/lasting_home.hpp"

namespace garonne::plan {

TrainedContents::TrainedContents(const Program& program)
    : program_(program), homes_(lasting_homes(program)) {
  for (int id = 0; id < static_cast<int>(homes_.size()); ++id)
    brings_ = brings_ || (home(id) >= 0 && home(id) != id);
  for (int id = 0; brings_ && id < static_cast<int>(homes_.size()); ++id) {
    if (home(id) == id) contents_[id].home = id;
  }
}

const std::string& TrainedContents::name(int buffer) const {
  return program_.buffers[static_cast<std::size_t>(buffer)].name;
}

const TrainedContents::Content* TrainedContents::content_of(int buffer) const {
  const auto found = contents_.find(buffer);
  return found == contents_.end() ? nullptr : &found->second;
}

std::string TrainedContents::copy(int from, int to) {
  const Content* const content = content_of(from);
  if (home(to) == to && (content == nullptr || content->home != to))
    return fmt::format("{} lasts and would get the numbers of {}", name(to), name(from));
  if (content == nullptr) {
    contents_.erase(to);
  } else {
    contents_[to] = Content(*content);
  }
  return "";
}

std::string TrainedContents::update(int buffer, int piece) {
  if (!brings_) return "";
  const auto found = contents_.find(buffer);
  if (found == contents_.end() || found->second.home != home(buffer))
    return fmt::format("updates {}, which does not hold what lasts", name(buffer));
  found->second.updated.insert(piece);
  return "";
}

void TrainedContents::remake(int buffer, int of, int piece) {
  Content& content = contents_[buffer];
  if (content.home != home(of)) content = {home(of), {}};
  content.updated.insert(piece);
}

void TrainedContents::forget(int buffer) {
  const auto found = contents_.find(buffer);
  if (found != contents_.end() && home(buffer) != buffer) contents_.erase(found);
}

std::string TrainedContents::finish() const {
  if (!brings_) return "";
  const auto reaches = [&](int buffer, int piece) {
    const Content* const content = content_of(home(buffer));
    return content != nullptr && content->updated.contains(piece);
  };
  for (std::size_t id = 0; id < program_.pieces.size(); ++id) {
    const Piece& piece = program_.pieces[id];
    const int number = static_cast<int>(id);
    const auto lost = [&](int buffer) {
      return fmt::format("the update of piece {} is lost with {}", id, name(buffer));
    };
    if (!reaches(piece.trained.buffer, number)) return lost(piece.trained.buffer);
    for (const Range& state : piece.states) {
      if (!reaches(state.buffer, number)) return lost(state.buffer);
    }
    const int copy = piece.compute_copy.buffer;
    if (copy >= 0 && !reaches(copy, number)) return lost(copy);
  }
  return "";
}

}  // namespace garonne::plan
