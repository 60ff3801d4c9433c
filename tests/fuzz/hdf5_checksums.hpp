// Where the structures of an HDF5 file are, and their checksums.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace garonne::fuzz {

// From its signature on; the checksum, where it has one, comes after `bytes` of them.
struct Hdf5Structure {
  std::string signature;
  std::size_t begin = 0;
  std::size_t bytes = 0;  // 0 = none was found
};

// Of a whole file.
std::vector<Hdf5Structure> find_structures(const std::string& file);

// Writes the checksums of structures whose bytes have been changed.
void mend_checksums(std::string& file, const std::vector<Hdf5Structure>& structures);

}  // namespace garonne::fuzz
