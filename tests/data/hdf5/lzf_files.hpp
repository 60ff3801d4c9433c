// Chunks as h5py compresses them by `lzf`: put into the file as they are, since only the way back
// is the program's.
#pragma once

#include <gtest/gtest.h>
#include <hdf5.h>
#include <hdf5_hl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_internal.hpp"

namespace garonne::data::testing {

// LZF by its definition, none of its cleverness: runs of literals (length − 1 in a byte below 32,
// then the bytes), and references (3 bits of length − 2 and the upper 5 of distance − 1, a byte of
// length − 9 where the 3 bits are 7, the lower 8 bits of the distance).
inline std::string lzf_compressed(const std::string& bytes) {
  std::string out;
  std::string literals;
  const auto flush = [&] {
    for (std::size_t begin = 0; begin < literals.size(); begin += 32) {
      const std::string piece = literals.substr(begin, 32);
      out += static_cast<char>(piece.size() - 1);
      out += piece;
    }
    literals.clear();
  };
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::size_t best = 0;
    std::size_t distance = 0;
    for (std::size_t back = 1; back <= at && back <= 8192; ++back) {
      std::size_t length = 0;
      while (length < 264 && at + length < bytes.size() &&
             bytes[at + length] == bytes[at - back + length]) {
        ++length;
      }
      if (length > best) {
        best = length;
        distance = back;
      }
    }
    if (best < 3) {
      literals += bytes[at++];
      continue;
    }
    flush();
    const std::size_t code = std::min<std::size_t>(best - 2, 7);
    out += static_cast<char>(code << 5 | (distance - 1) >> 8);
    if (code == 7) out += static_cast<char>(best - 9);
    out += static_cast<char>((distance - 1) & 0xFF);
    at += best;
  }
  flush();
  return out;
}

// Bytes of like significance together, as the filter shuffle puts them.
inline std::string shuffled(const std::string& bytes, std::size_t width) {
  std::string out;
  for (std::size_t byte = 0; byte < width; ++byte) {
    for (std::size_t at = byte; at < bytes.size(); at += width) out += bytes[at];
  }
  return out;
}

struct LzfDataset {
  std::vector<hsize_t> shape;
  std::vector<hsize_t> chunk;  // divides the shape
  bool shuffle = false;
  bool one_plain_chunk = false;   // as where compression does not pay
  unsigned said_chunk_bytes = 0;  // 0 = as many as there are

  // Adds the dataset of these values to a file that exists.
  void write(const std::string& path, const std::string& name,
             const std::vector<float>& values) const {
    const auto rank = static_cast<int>(shape.size());
    std::size_t chunk_elements = 1;
    for (const hsize_t size : chunk) chunk_elements *= size;
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(file, 0) << path;
    const hid_t space = H5Screate_simple(rank, shape.data(), nullptr);
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, rank, chunk.data());
    if (shuffle) H5Pset_shuffle(properties);
    const auto bytes = static_cast<unsigned>(chunk_elements * sizeof(float));
    const unsigned parameters[] = {4, 0x0105, said_chunk_bytes == 0 ? bytes : said_chunk_bytes};
    H5Pset_filter(properties, lzf_filter, H5Z_FLAG_OPTIONAL, 3, parameters);
    // HDF5 makes no dataset of a filter that it knows to be for reading only, and writes its name,
    // if it knows it by then, at the end.
    H5Zunregister(lzf_filter);
    const hid_t dataset =
        H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    ASSERT_GE(dataset, 0) << name;
    bool plain = one_plain_chunk;
    std::vector<hsize_t> corner(shape.size(), 0);
    for (;;) {
      std::vector<float> box;
      std::vector<hsize_t> at(shape.size(), 0);
      for (std::size_t element = 0; element < chunk_elements; ++element) {
        std::size_t place = 0;
        std::size_t rest = element;
        for (std::size_t axis = shape.size(); axis-- > 0;) {
          at[axis] = rest % chunk[axis];
          rest /= chunk[axis];
        }
        for (std::size_t axis = 0; axis < shape.size(); ++axis) {
          place = place * shape[axis] + corner[axis] + at[axis];
        }
        box.push_back(values[place]);
      }
      std::string stored(reinterpret_cast<const char*>(box.data()), bytes);
      if (shuffle) stored = shuffled(stored, sizeof(float));
      // A bit of the mask leaves the filter of that number out.
      const std::uint32_t mask = plain ? (shuffle ? 2 : 1) : 0;
      if (!plain) stored = lzf_compressed(stored);
      plain = false;
      EXPECT_GE(
          H5DOwrite_chunk(dataset, H5P_DEFAULT, mask, corner.data(), stored.size(), stored.data()),
          0);
      std::size_t axis = shape.size();
      while (axis-- > 0) {
        corner[axis] += chunk[axis];
        if (corner[axis] < shape[axis]) break;
        corner[axis] = 0;
        if (axis == 0) {
          H5Dclose(dataset);
          H5Pclose(properties);
          H5Sclose(space);
          H5Fclose(file);
          register_lzf();
          return;
        }
      }
    }
  }
};

}  // namespace garonne::data::testing
