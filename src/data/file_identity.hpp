// By what ranks find out whether their copies of a data file are copies of one file: its size, what
// its headers and attributes say, and the first and the last chunk of each dataset that is used. A
// path or a time is no part of it, so copies may lie anywhere.
#pragma once

#include <string>
#include <vector>

#include "dist/fact_agreement.hpp"

namespace garonne::data {

class Hdf5File;
struct FieldFile;

struct FileIdentity {
  std::string path;
  std::string contents;  // equal texts, equal files, as far as was looked
};

// `datasets`: those whose chunks and attributes are looked at, besides the attributes of the root.
// `understood`: what the reader of this kind of file made of it. IoError as Hdf5File::dataset.
FileIdentity identify_file(const Hdf5File& file, const std::vector<std::string>& datasets,
                           const std::string& understood = {});

// A tokens file with its training and validation tokens.
FileIdentity identify_token_file(const std::string& path);

// Of files of fields, one for each that they lie in; of groups of trajectories the first and the
// last.
std::vector<FileIdentity> identify_field_files(const std::vector<FieldFile>& files);

// As facts that ranks compare; `key` says where the run file names them ("data.path").
dist::Facts file_facts(const std::string& key, const std::vector<FileIdentity>& files);

}  // namespace garonne::data
