package dev.symm;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** Loads the native library, once, when the first of its functions is needed. */
final class NativeLibrary {
  static final String PROPERTY = "symm.library.path";
  private static final String FILE = "libsymm_jni.so";

  private NativeLibrary() {}

  static void load() {
    String path = System.getProperty(PROPERTY);
    if (path != null && !path.isEmpty()) {
      Path file = Path.of(path).toAbsolutePath();
      System.load((Files.isDirectory(file) ? file.resolve(FILE) : file).toString());
      return;
    }
    String resource = "/symm/" + platform() + "/" + FILE;
    try (InputStream in = NativeLibrary.class.getResourceAsStream(resource)) {
      if (in == null) {
        throw new UnsatisfiedLinkError(
            "symm's jar has no native library for "
                + platform()
                + " ("
                + resource
                + "); build one, and name it by the system property "
                + PROPERTY);
      }
      loadCopy(in);
    } catch (IOException e) {
      throw failure("symm's native library cannot be copied to " + temporary(), e);
    }
  }

  /** The copy is gone when this returns: the mapping is all that is needed. */
  private static void loadCopy(InputStream in) throws IOException {
    Path copy = Files.createTempFile("libsymm_jni", ".so");
    try {
      Files.copy(in, copy, StandardCopyOption.REPLACE_EXISTING);
      System.load(copy.toString());
    } catch (UnsatisfiedLinkError e) {
      throw failure("symm's native library, copied to " + temporary() + ", does not load", e);
    } finally {
      Files.deleteIfExists(copy);
    }
  }

  private static String temporary() {
    return System.getProperty("java.io.tmpdir");
  }

  private static UnsatisfiedLinkError failure(String what, Throwable cause) {
    UnsatisfiedLinkError error =
        new UnsatisfiedLinkError(
            what
                + ": "
                + cause.getMessage()
                + "; set java.io.tmpdir to a folder that can be written to and executed from, or "
                + PROPERTY
                + " to the library");
    error.initCause(cause);
    return error;
  }

  static String platform() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT).replace(' ', '_');
    String arch = System.getProperty("os.arch");
    return os + "-" + (arch.equals("amd64") ? "x86_64" : arch);
  }
}
