package dev.symm;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Text on its way to and from the native library: UTF-8, NUL-terminated where it goes in. */
final class Utf8 {
  private Utf8() {}

  static byte[] bytes(String text) {
    if (text == null) {
      return null;
    }
    if (text.indexOf('\0') >= 0) {
      throw new IllegalArgumentException(
          "\"" + text.replace("\0", "\\0") + "\" has a NUL, where C would take the text to end");
    }
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    return Arrays.copyOf(bytes, bytes.length + 1);
  }

  static String text(byte[] bytes) {
    return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
  }
}
