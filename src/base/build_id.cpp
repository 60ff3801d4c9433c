#include "base/build_id.hpp"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <cstring>

#include "base/error.hpp"

namespace garonne {
namespace {

// In a segment of notes: a header, the owner's name and what it says, each padded.
std::string find_note(const unsigned char* notes, std::size_t bytes, std::size_t alignment) {
  const auto padded = [&](std::size_t length) {
    return (length + alignment - 1) / alignment * alignment;
  };
  ElfW(Nhdr) header;
  for (std::size_t at = 0; at + sizeof header <= bytes;) {
    std::memcpy(&header, notes + at, sizeof header);
    const std::size_t name = at + sizeof header;
    const std::size_t text = name + padded(header.n_namesz);
    if (text + header.n_descsz > bytes) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        std::memcmp(notes + name, "GNU", 4) == 0) {
      std::string digits;
      for (std::size_t i = 0; i < header.n_descsz; ++i)
        digits += fmt::format("{:02x}", notes[text + i]);
      return digits;
    }
    at = text + padded(header.n_descsz);
  }
  return {};
}

// Called for the executable first, and then stops.
int visit(dl_phdr_info* object, std::size_t, void* data) {
  auto& found = *static_cast<std::string*>(data);
  for (int i = 0; i < object->dlpi_phnum && found.empty(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    found = find_note(reinterpret_cast<const unsigned char*>(object->dlpi_addr + segment.p_vaddr),
                      segment.p_memsz, segment.p_align == 8 ? 8 : 4);
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string found;
  dl_iterate_phdr(visit, &found);
  expect(!found.empty(), "this executable has no build id; link it with -Wl,--build-id");
  return found;
}

}  // namespace garonne
