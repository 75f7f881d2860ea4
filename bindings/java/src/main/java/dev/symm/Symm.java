package dev.symm;

/**
 * The library as a whole. It is in the jar, and loaded when first used; the system property {@code
 * symm.library.path} names another file, or the folder that libsymm_jni.so is in.
 */
public final class Symm {
  private Symm() {}

  /**
   * The native library's version.
   *
   * @return "major.minor.patch"
   */
  public static String version() {
    int version = capi.symm_version();
    return version / 1_000_000 + "." + version / 1_000 % 1_000 + "." + version % 1_000;
  }

  /**
   * A new address, served by this process, a rank or not, until it exits: hand it to every rank by
   * any means.
   *
   * @return for {@link Comm#create}; it serves any number of communicators, by name
   */
  public static String createAddress() {
    return createAddress(null);
  }

  /**
   * The same for others who reach this process by one name only.
   *
   * @param host the name or number they reach it by; null is every interface
   * @return for {@link Comm#create}
   */
  public static String createAddress(String host) {
    return capi.flat_address_create(host);
  }

  /**
   * What there is to know about this process and machine.
   *
   * @return JSON; keys are only ever added
   */
  public static String report() {
    return capi.flat_report(0);
  }
}
