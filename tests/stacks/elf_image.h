// An ELF file laid out in memory as the loader would, without relocations: enough to read its unwind tables.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/stacks/cfi.h"

namespace penumbra::testing {

class ElfImage {
 public:
  explicit ElfImage(const std::string& path);  // throws std::runtime_error
  ~ElfImage();
  ElfImage(const ElfImage&) = delete;
  ElfImage& operator=(const ElfImage&) = delete;

  std::uintptr_t bias() const { return bias_; }
  stacks::ByteRange header() const { return header_; }  // .eh_frame_hdr
  stacks::ByteRange frame() const { return frame_; }    // the segment of .eh_frame
  // Every FDE, in the order of the file.
  const std::vector<stacks::CfiEntry>& entries() const { return entries_; }

 private:
  std::uintptr_t bias_ = 0;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  stacks::ByteRange header_;
  stacks::ByteRange frame_;
  std::vector<stacks::CfiEntry> entries_;
};

}  // namespace penumbra::testing
