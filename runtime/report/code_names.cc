#include "runtime/report/code_names.h"

#include "runtime/base/raw_memory.h"

namespace penumbra::report {
namespace {

bool same_text(const char* a, const char* b) {
  return a != nullptr && b != nullptr && raw_compare(a, b, raw_length(a) + 1) == 0;
}

}  // namespace

bool is_plain_symbol(const char* name) {
  for (const char* p = name; *p != '\0'; ++p) {
    const bool letter = (*p | 0x20) >= 'a' && (*p | 0x20) <= 'z';
    const bool digit = *p >= '0' && *p <= '9';
    if (!letter && !digit && *p != '_' && *p != '.') return false;
  }
  return name[0] != '\0' && name[0] != '.';
}

void NameTable::clear() {
  count_ = 0;
  pool_used_ = 0;
}

const char* NameTable::keep(const char* text, std::size_t length) {
  if (pool_.size() - pool_used_ <= length) return nullptr;
  char* const kept = pool_.data() + pool_used_;
  raw_copy(kept, text, length);
  kept[length] = '\0';
  pool_used_ += length + 1;
  return kept;
}

CodeName* NameTable::add(std::uintptr_t pc, bool is_return_address) {
  for (std::size_t i = 0; i < count_; ++i) {
    if (names_[i].pc == pc) return &names_[i];
  }
  if (count_ == kCapacity) return nullptr;
  CodeName& name = names_[count_++];
  name = CodeName{};
  name.pc = pc;
  name.is_return_address = is_return_address;
  name_locally(name);
  return &name;
}

const CodeName* NameTable::find(std::uintptr_t pc) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (names_[i].pc == pc) return &names_[i];
  }
  return nullptr;
}

void NameTable::name_locally(CodeName& name) {
  // A call at the very end of a function returns into the next one: look where the call was.
  const std::uintptr_t at = name.pc - (name.is_return_address ? 1 : 0);
  Module module;
  if (!find_module(at, module)) return;
  FixedTextBuffer<64> text;
  name.module_path = keep(module.path, raw_length(module.path));
  name.module = name.module_path == nullptr ? "?" : name.module_path + (module.base_name() - module.path);
  name.module_offset = name.pc - module.bias;
  name.module_is_loaded = module.is_loaded;
  if (module.build_id_bytes != 0) {
    for (unsigned i = 0; i < module.build_id_bytes; ++i) text.hex_padded(module.build_id[i], 2);
    name.build_id = keep(text.data(), text.size());
  }

  Symbol symbol;
  Bounds bounds;
  if (module.is_loaded) {
    symbol = nearest_symbol(module, at);
    bounds = function_bounds(module, at);
  }
  // An assembly label without a size covers nothing; the unwind table says whether it begins this function.
  if (symbol.name != nullptr && !symbol.covers && symbol.begin == bounds.begin && bounds.bytes != 0) {
    symbol.bytes = bounds.bytes;
    symbol.covers = true;
  }
  if (symbol.covers && is_plain_symbol(symbol.name)) {
    name.function = keep(symbol.name, raw_length(symbol.name));
    name.offset = name.pc - symbol.begin;
    name.bytes = symbol.bytes;
  }
  if (name.function != nullptr) return;
  if (bounds.bytes == 0) bounds.begin = at;
  text.clear();
  text.append("sub_").hex_padded(bounds.begin - module.bias, bounds.begin - module.bias > 0xffffffff ? 16 : 8);
  name.function = keep(text.data(), text.size());
  name.offset = name.pc - bounds.begin;
  name.bytes = bounds.bytes;
  if (symbol.name != nullptr) {
    name.near = keep(symbol.name, raw_length(symbol.name));
    name.near_offset = name.pc - symbol.begin;
  }
}

void append_place(TextBuffer& out, const CodeName& name) {
  if (name.function == nullptr) {
    out.hex(name.pc);
    return;
  }
  out.append(name.function).append("+").hex(name.offset).append("/").hex(name.bytes);
  if (name.module != nullptr) out.append(" [").append(name.module).append("]");
}

void append_frame(TextBuffer& out, const CodeName& name) {
  out.append(" [<").hex_padded(name.pc, 16).append(">] ");
  append_place(out, name);
  if (name.source_count > 0) {
    const SourceFrame& inner = name.source[0];
    if (inner.function != nullptr && !same_text(inner.function, name.function))
      out.append(" ").append(inner.function);
    if (inner.file != nullptr) {
      out.append(" ").append(inner.file);
      if (inner.line != 0) out.append(":").dec(inner.line);
    }
  }
  if (name.module != nullptr && (name.source_count == 0 || name.source[0].file == nullptr)) {
    out.append(" (")
        .append(name.module_path != nullptr ? name.module_path : name.module)
        .append("+")
        .hex(name.module_offset);
    if (name.build_id != nullptr) out.append(", build-id ").append(name.build_id);
    if (name.near != nullptr) out.append(", ").hex(name.near_offset).append(" after ").append(name.near);
    if (!name.module_is_loaded) out.append(", unloaded since");
    out.append(")");
  }
  out.append("\n");
  for (std::size_t i = 1; i < name.source_count; ++i) {
    const SourceFrame& outer = name.source[i];
    out.append("  inlined into ").append(outer.function != nullptr ? outer.function : "?");
    if (outer.file != nullptr) {
      out.append(" ").append(outer.file);
      if (outer.line != 0) out.append(":").dec(outer.line);
    }
    out.append("\n");
  }
}

}  // namespace penumbra::report
