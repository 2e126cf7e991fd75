# Prints the option list of flags.inc as `penumbra --help` does, for the script that has no launcher yet.
# The launcher's own printing is append_option_help() in runtime/base/options.cc; a test compares the two.
/^#|^$/ { next }
/^PENUMBRA_FLAG_/ { entry = "" }
{ entry = entry $0 }
/^PENUMBRA_FLAG_.*[^)]$/ { next }
/\)$/ && entry ~ /^PENUMBRA_FLAG_/ {
  kind = entry
  sub(/^PENUMBRA_FLAG_/, "", kind)
  sub(/\(.*/, "", kind)
  body = entry
  sub(/^[^(]*\(/, "", body)
  # The help is the last string, without the commas before it.
  help = body
  sub(/"\)$/, "", help)
  sub(/.*"/, "", help)
  count = split(body, field, /, */)
  if (kind == "BOOL") left = field[1] (field[2] == "true" ? "=1" : "=0")
  if (kind == "INT") left = field[1] "=" field[2]
  if (kind == "BYTES") left = field[1] "=BYTES"
  if (kind == "TEXT") left = field[1] "=TEXT"
  if (kind == "ENUM") {
    words = field[4]
    gsub(/"/, "", words)
    left = field[2] "=" words
  }
  printf "  %s\n      %s\n", left, help
  entry = ""
}
