package dev.symm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the native library comes from. */
class LoaderTest {
  @TempDir Path folder;

  /** Loads the library, prints what the process has mapped of it. */
  static final class Loads implements Rank.Body {
    @Override
    public void run(Rank rank) throws Exception {
      System.out.println("version " + Symm.version());
      try (Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
        System.out.println(
            maps.filter(line -> line.contains("libsymm_jni"))
                .map(line -> line.substring(line.indexOf('/')))
                .distinct()
                .collect(Collectors.joining("\\n")));
      }
    }
  }

  private static Ranks.Child load(String... options) throws Exception {
    List<String> arguments = new ArrayList<>(List.of(options));
    Collections.addAll(arguments, Rank.class.getName(), Loads.class.getName(), "", "0", "1", "");
    return new Ranks.Child(Ranks.machine(arguments));
  }

  private static long files(Path folder) throws Exception {
    try (Stream<Path> files = Files.list(folder)) {
      return files.count();
    }
  }

  private Path copy(Path to) throws Exception {
    try (InputStream in =
        LoaderTest.class.getResourceAsStream(
            "/symm/" + NativeLibrary.platform() + "/libsymm_jni.so")) {
      Files.copy(in, to, StandardCopyOption.REPLACE_EXISTING);
    }
    return to;
  }

  @Test
  void theTemporaryFileIsGoneOnceItIsLoaded() throws Exception {
    Ranks.Child child = load("-Djava.io.tmpdir=" + folder);
    assertEquals(0, child.exitStatus(), child.output());
    String said = child.output();
    assertTrue(said.contains("version " + Symm.version()), said);
    assertTrue(said.contains(folder + "/libsymm_jni"), said);
    assertTrue(said.contains(".so (deleted)"), said);
    assertEquals(0, files(folder));
  }

  @Test
  void aPropertyNamesAnotherFileOrItsFolder() throws Exception {
    Path empty = Files.createDirectory(folder.resolve("temporary"));
    Path file = copy(folder.resolve("libsymm_jni.so"));
    for (Path path : new Path[] {file, folder}) {
      Ranks.Child child = load("-Djava.io.tmpdir=" + empty, "-Dsymm.library.path=" + path);
      assertEquals(0, child.exitStatus(), child.output());
      assertTrue(child.output().contains(file + "\n"), child.output());
      assertEquals(0, files(empty));
      assertTrue(Files.exists(file));
    }
  }

  @Test
  void aPropertyThatNamesNothingSaysSo() throws Exception {
    Ranks.Child child = load("-Dsymm.library.path=" + folder.resolve("none.so"));
    assertEquals(1, child.exitStatus());
    assertTrue(
        child.output().contains("UnsatisfiedLinkError") && child.output().contains("none.so"),
        child.output());
  }

  @Test
  void aTemporaryFolderThatCannotBeUsedIsNamedWithTheRemedy() throws Exception {
    Ranks.Child child = load("-Djava.io.tmpdir=" + folder.resolve("missing"));
    assertEquals(1, child.exitStatus());
    String said = child.output();
    assertTrue(said.contains("missing") && said.contains("symm.library.path"), said);
  }

  @Test
  void aPlatformWithoutALibraryIsNamed() throws Exception {
    Ranks.Child child = load("-Dos.arch=m68k");
    assertEquals(1, child.exitStatus());
    assertTrue(child.output().contains("linux-m68k"), child.output());
  }

  @Test
  void anotherClassLoaderHasALibraryOfItsOwnAndMayGo() throws Exception {
    List<URL> classes = new ArrayList<>();
    for (String path : System.getProperty("java.class.path").split(":")) {
      classes.add(Path.of(path).toUri().toURL());
    }
    WeakReference<ClassLoader> gone = null;
    for (int turn = 0; turn < 3; ++turn) {
      URLClassLoader loader =
          new URLClassLoader(classes.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
      Class<?> rank = loader.loadClass(Rank.class.getName());
      assertNotSame(Rank.class, rank);
      String[] arguments = {Uses.class.getName(), "", "0", "1", ""};
      var main = rank.getDeclaredMethod("main", String[].class);
      main.setAccessible(true);
      main.invoke(null, (Object) arguments);
      gone = new WeakReference<>(loader);
      loader.close();
    }
    for (int i = 0; i < 200 && gone.get() != null; ++i) {
      System.gc();
      Thread.sleep(10);
    }
    assertNull(gone.get(), "a class loader that nobody uses stays");
    new Uses().run(null);
  }

  /** Uses the library, and forgets some of it. */
  static final class Uses implements Rank.Body {
    @Override
    public void run(Rank rank) {
      try (Comm comm = Comm.create(Symm.createAddress("127.0.0.1"), 0, 1)) {
        comm.window(4096).buffer(0).putInt(0, 1);
        comm.barrier();
      }
    }
  }
}
