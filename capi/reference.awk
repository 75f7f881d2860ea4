# Doxygen's input filter: the comments of symm.h, which are plain C for those who read the header,
# as documentation comments. Lines stay where they are, so that warnings name symm.h's lines.

# What Doxygen would take for markup, and `code`.
function prose(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  gsub(/#/, "\\#", text)
  while (match(text, /`[^`]*`/)) {
    text = substr(text, 1, RSTART - 1) "<tt>" substr(text, RSTART + 1, RLENGTH - 2) "</tt>" \
           substr(text, RSTART + RLENGTH)
  }
  return text
}

# True while the line that follows belongs to the same comment.
function open(text) { return text !~ /\*\/$/ }

inside { print prose($0); inside = open($0); next }

# A heading starts a group of members, and ends the one before it.
/^\/\* ---- .* ---- \*\/$/ {
  title = $0
  sub(/^\/\* ---- /, "", title)
  sub(/ ---- \*\/$/, "", title)
  print (grouped ? "/** @} */ " : "") "/** @name " title " */ /** @{ */"
  grouped = 1
  next
}
NR == 1 { sub(/^\/\* symm\.h - /, "/** @file symm.h @brief "); print; inside = open($0); next }
/^\/\*/ { print "/**" prose(substr($0, 3)); inside = open($0); next }
# After code: about what stands before it.
/\/\*.*\*\/$/ { at = index($0, "/*"); print substr($0, 1, at - 1) "/**<" prose(substr($0, at + 2)); next }
{ print }
END { if (grouped) print "/** @} */" }
