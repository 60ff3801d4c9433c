// Virtual datasets: elements that lie in datasets of other files, as makani's .h5v files put years
// and channels together. For the HDF5 sources of this room.
//
// HDF5 gives fill values where a source is not there, too short or of another name. So only the
// list of sources is asked of it, and elements are read from the sources themselves, by the door
// that all files go through (hdf5.hpp): what is missing is an error that names it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

// Indices start, start + step, … along a dimension.
struct Steps {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 1;
  std::int64_t last() const { return start + (count - 1) * step; }
};

// Which of its selections give which elements of one dataset. Every call wants the library's lock.
class VirtualSources {
 public:
  // Of the dataset `name` of `path` with these creation properties and this shape. IoError where a
  // source is missing, a selection is no grid of rows and columns, the selections overlap or leave
  // elements out. `foreign`: each source is opened and its shape and type are looked at; null =
  // that was done before, and a source is opened when it is needed.
  VirtualSources(std::int64_t properties, std::string path, std::string name,
                 std::span<const std::int64_t> shape, std::shared_ptr<ForeignReader> foreign);

  // As Hdf5Dataset::read_box. IoError also where a source has another size than before.
  template <typename T>
  void read(std::span<const std::int64_t> first, std::span<const std::int64_t> count,
            std::span<T> values);

  std::size_t files() const;
  // Elements of all sources together, each once; only of sources that were opened for a check.
  double source_elements() const { return source_elements_; }
  // Sources and selections in words, with the bytes of the files but not where these lie.
  std::string text() const;
  // Hdf5Dataset::hash_of_chunk of the source that has the first or last element.
  std::string hash_of_chunk(bool last);

 private:
  struct Source {
    std::string named;  // as the dataset names it
    std::string path;
    std::string dataset;
    std::int64_t bytes = 0;
  };
  // A selection that is the same grid here and there. Dimensions that have one index in the whole
  // selection are left out of `moving` and of `there`.
  struct Part {
    std::size_t source = 0;
    std::vector<Steps> here;          // along each dimension
    std::vector<int> moving;          // dimensions of the virtual dataset, …
    std::vector<Steps> there;         // … and the indices that they go through in the source
    std::vector<std::int64_t> fixed;  // of each of its dimensions the index, -1 = it moves
    // All of the source is selected, whose dimensions are told by their lengths: those that move
    // have these, the others 1.
    bool whole = false;
    std::vector<std::int64_t> lengths;
  };
  struct Opened {
    std::size_t source;
    std::int64_t cache_bytes;
    std::unique_ptr<Hdf5File> file;
    std::unique_ptr<Hdf5Dataset> dataset;  // goes before its file
  };

  [[noreturn]] void fail(const std::string& what) const;
  std::size_t add_source(const std::string& file, const std::string& dataset);
  std::string find(const std::string& file) const;
  void add_parts(std::int64_t here, std::int64_t there, std::size_t source,
                 std::span<const std::int64_t> shape);
  void add_combinations(Part part, const std::vector<std::vector<Steps>>& moving,
                        const std::vector<std::vector<Steps>>& followed);
  void check_coverage(std::span<const std::int64_t> shape);
  void check_sources(const std::shared_ptr<ForeignReader>& foreign);
  void check_part(const Part& part, const Hdf5Dataset& dataset) const;
  const Hdf5Dataset& open(std::size_t source);

  std::string path_;
  std::string name_;
  std::vector<Source> sources_;
  // By the names of file and dataset in the list, and by the path of the file and the dataset.
  std::map<std::pair<std::string, std::string>, std::size_t> by_name_;
  std::map<std::pair<std::string, std::string>, std::size_t> by_path_;
  std::vector<Part> parts_;
  std::list<Opened> opened_;  // the one used last comes first
  double source_elements_ = 0;
};

}  // namespace garonne::data
