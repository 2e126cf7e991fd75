// What the checked process and its helper `penumbra symbolize` say to each other: text lines over two pipes.
//
// The helper is the launcher's binary, started as `penumbra symbolize` without further arguments. It answers
// requests in order until its input ends, and flushes after each answer, so a client may send many requests and
// then read as many answers, or take turns.
//
//   request   PATH TAB BUILD_ID TAB ADDRESS NEWLINE
//     PATH      of the ELF file as the kernel knows it. May hold tabs, not newlines: it is read from the right.
//     BUILD_ID  lower-case hex, empty if unknown. A file that now has another one gets an empty answer.
//     ADDRESS   lower-case hex without 0x, in the file's own terms: pc minus the module's load bias
//               (dl_phdr_info::dlpi_addr, 0 for a program that is not position-independent). For a return address the
//               client sends the address minus 1, and adds the 1 to the offset of the answer.
//
//   answer    one line a frame, innermost first, inlined functions before the function that holds them; then an
//             empty line. Nothing but the empty line: nothing is known, or the request was garbage.
//     MANGLED TAB DEMANGLED TAB SYMBOL_OFFSET TAB SYMBOL_SIZE TAB FILE TAB LINE NEWLINE
//     DEMANGLED is empty where it would equal MANGLED. SYMBOL_OFFSET and SYMBOL_SIZE (hex without 0x) are those of
//     the ELF symbol around the address, the same in every frame of an answer. LINE is decimal. A field that is not
//     known is empty. Tabs and newlines inside names are replaced by blanks.
//
// I1  a line of an answer is shorter than kSymbolizeLineBytes, newline included: long names are cut.
// I2  an answer has at most kSymbolizeFrames frames: of a deeper nest the outermost are kept out, but the last one.
// The time limit is the client's: a helper that does not answer is given up, never waited for.
//
// zone: signal-safe
#pragma once

#include <cstddef>

namespace penumbra {

inline constexpr std::size_t kSymbolizeLineBytes = 4096;
inline constexpr std::size_t kSymbolizeFrames = 16;

inline constexpr char kSymbolizeCommand[] = "symbolize";

// Where the launcher's binary lies, seen from the folder of libpenumbra.so, in the order to try: the build tree,
// then an installation with lib/ or lib/<triplet>/ beside bin/.
inline constexpr const char* kLauncherFromLibrary[] = {"launcher/penumbra", "../bin/penumbra", "../../bin/penumbra"};
// The other way round: where libpenumbra.so lies, seen from the folder of the launcher's binary.
inline constexpr const char* kLibraryFromLauncher[] = {"../libpenumbra.so", "../lib/x86_64-linux-gnu/libpenumbra.so",
                                                       "../lib/libpenumbra.so"};

}  // namespace penumbra
