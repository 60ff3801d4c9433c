// HDF5 files from short texts that say, line by line, what is in them. The inputs of targets that
// read HDF5 are such recipes: every change of one is another file that HDF5 itself made, so that
// what is tried is what reads it, and changes of the bytes are lines, too.
//
//   old                                    structures of before 1.10, without checksums
//   by-path                                wants functions that open the file by themselves
//   group NAME
//   array NAME TYPE SHAPE [OPTION…] [= VALUE…] | [from FIRST STEP]
//       TYPE  f2 f4 f8 f16 i1…i16 u1…u16, with b at its end big-endian; e1 e4 enumerations,
//             b1 bits, sN texts of N bytes, s of any length, oN opaque, c compound, r references,
//             v lists, a arrays
//       SHAPE 2,3,4 or scalar or null; * is a dimension that may grow
//       OPTION chunk SHAPE, deflate, shuffle, fletcher32, nbit, lzf, packed (by LZF), filter N,
//             compact, external, early
//   store NAME CHUNK MASK HEX              the bytes of a chunk as they are
//   texts NAME TEXT…                       of one length; long-texts of any
//   text OBJECT NAME TEXT                  an attribute; long-text of any length: to the line's end
//   number OBJECT NAME TYPE [times N] VALUE…     texts too, of the types sN and s
//   scales DATASET SCALE…                  HDF5's dimension scales; - is none
//   virtual NAME TYPE SHAPE, then lines    map HERE FILE DATASET SHAPE THERE
//       HERE, THERE  all, or start:stride:count:block of each dimension with commas; + adds another
//   soft NAME TARGET | hard NAME TARGET | external NAME FILE TARGET   links
//   into NAME                              what follows goes into another file beside it
//   beside NAME TEXT                       a text file beside it
//   put PLACE HEX                          changes bytes, then mends all checksums
//   spoil PLACE HEX | cut BYTES            changes them, and mends nothing
//       PLACE  a number, or OHDR.2+5: byte 5 of the third such structure
//
// A line that is not understood, or that HDF5 refuses, is left out.
#pragma once

#include <string>
#include <string_view>

namespace garonne::fuzz {

struct MadeFiles {
  std::string path;      // of the first file
  bool by_path = false;  // functions that open it by themselves are to be tried
};

// Makes the files in `folder`, which is there and empty.
MadeFiles make_hdf5_files(std::string_view recipe, const std::string& folder);

}  // namespace garonne::fuzz
