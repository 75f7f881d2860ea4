// One rank of an all-reduce, by C# and P/Invoke (Mono or .NET on Linux).
//
//   mcs AllReduce.cs
//   mono AllReduce.exe tcp://127.0.0.1:29500 0 2 & mono AllReduce.exe tcp://127.0.0.1:29500 1 2
//
// SYMM_LIBRARY: which library to load ("libsymm.so.0").
using System;
using System.Globalization;
using System.Runtime.InteropServices;

// From symm.h. size_t is UIntPtr, and every field of the struct is blittable: it is passed where it
// lies, not copied.
public static class Symm
{
    public const int SYMM_OK = 0;
    public const int SYMM_CPU = -1;
    public const int SYMM_FLOAT32 = 7;
    public const int SYMM_SUM = 0;

    [StructLayout(LayoutKind.Sequential)]
    public struct CommOptions
    {
        public UIntPtr size;
        public IntPtr name;
        public IntPtr nccl_path;
        public IntPtr error;
        public UIntPtr error_size;
        public UIntPtr scratch_bytes;
        public int timeout_ms;
        public int wait_timeout_ms;
        public uint flags;
        public uint reserved;
    }

    const string Library = "libsymm.so.0";

    // Not `string`: the runtime would free what it was given, and the library keeps its strings.
    [DllImport(Library)] static extern IntPtr symm_status_name(int status);
    [DllImport(Library)] static extern IntPtr symm_last_error();
    // Strings are UTF-8 here on Mono and .NET alike.
    [DllImport(Library)]
    public static extern int symm_comm_create(string address, int rank, int size, int device,
                                              ref CommOptions options, out IntPtr comm);
    [DllImport(Library)] public static extern void symm_comm_free(IntPtr comm);
    [DllImport(Library)]
    public static extern int symm_window_alloc(IntPtr comm, UIntPtr bytes, IntPtr options,
                                               out IntPtr window);
    [DllImport(Library)]
    public static extern int symm_window_data(IntPtr window, int rank, out IntPtr pointer);
    [DllImport(Library)] public static extern void symm_window_free(IntPtr window);
    // An array of a blittable type is pinned for the time of the call.
    [DllImport(Library)]
    public static extern int symm_all_reduce(IntPtr comm, float[] input, [Out] float[] output,
                                             UIntPtr count, int dtype, int op, IntPtr stream);
    [DllImport(Library)]
    public static extern int symm_window_all_reduce(IntPtr window, UIntPtr offset,
                                                    [Out] float[] output, UIntPtr count, int dtype,
                                                    int op, IntPtr stream);

    [DllImport("libdl.so.2")] static extern IntPtr dlopen(string path, int flags);
    [DllImport("libdl.so.2")] static extern IntPtr dlerror();
    const int RTLD_NOW = 2;

    // DllImport takes a constant name. A library that is loaded already, from wherever, is found by
    // the name inside it, which is this constant.
    public static void Load()
    {
        string path = Environment.GetEnvironmentVariable("SYMM_LIBRARY");
        if (dlopen(String.IsNullOrEmpty(path) ? Library : path, RTLD_NOW) == IntPtr.Zero)
            throw new SymmException("all_reduce: " + Text(dlerror()));
    }

    // A managed thread is one thread of the system (where no host says otherwise), so the last
    // error is that of the call just made.
    public static void Check(int status)
    {
        if (status != SYMM_OK)
            throw new SymmException(Text(symm_status_name(status)) + ": " +
                                    Text(symm_last_error()));
    }

    static string Text(IntPtr utf8) { return Marshal.PtrToStringAnsi(utf8); }
}

public class SymmException : Exception
{
    public SymmException(string message) : base(message) {}
}

public static class AllReduce
{
    const int Count = 1000;

    static int Number(string text)
    {
        int value;
        if (!Int32.TryParse(text, NumberStyles.AllowLeadingSign, CultureInfo.InvariantCulture,
                            out value))
            throw new SymmException("all_reduce: '" + text + "' is not a rank or a size");
        return value;
    }

    static byte[] Bits(float[] x)
    {
        var bytes = new byte[x.Length * sizeof(float)];
        Buffer.BlockCopy(x, 0, bytes, 0, bytes.Length);
        return bytes;
    }

    static ulong Fnv1a(byte[] data)
    {
        ulong digest = 14695981039346656037;
        foreach (byte b in data) digest = unchecked((digest ^ b) * 1099511628211);
        return digest;
    }

    static void Run(string address, int rank, int size)
    {
        var options = new Symm.CommOptions {
            size = (UIntPtr)(uint)Marshal.SizeOf(typeof(Symm.CommOptions)), timeout_ms = 60000 };
        IntPtr comm;
        Symm.Check(Symm.symm_comm_create(address, rank, size, Symm.SYMM_CPU, ref options,
                                         out comm));

        var x = new float[Count];
        var sum = new float[Count];
        var count = (UIntPtr)(uint)Count;
        for (int i = 0; i < Count; ++i) x[i] = (float)(1 / (1.0 + i + 1000.0 * rank));
        Symm.Check(Symm.symm_all_reduce(comm, x, sum, count, Symm.SYMM_FLOAT32, Symm.SYMM_SUM,
                                        IntPtr.Zero));

        // The same from a window, memory that every rank sees: no copy on the way in.
        IntPtr window, own;
        var again = new float[Count];
        Symm.Check(Symm.symm_window_alloc(comm, (UIntPtr)(uint)(Count * sizeof(float)), IntPtr.Zero,
                                          out window));
        Symm.Check(Symm.symm_window_data(window, rank, out own));
        Marshal.Copy(x, 0, own, Count);
        Symm.Check(Symm.symm_window_all_reduce(window, UIntPtr.Zero, again, count,
                                               Symm.SYMM_FLOAT32, Symm.SYMM_SUM, IntPtr.Zero));
        byte[] bits = Bits(sum), bitsAgain = Bits(again);
        for (int i = 0; i < bits.Length; ++i)
            if (bits[i] != bitsAgain[i])
                throw new SymmException("all_reduce: the window's sum has other bits");

        Console.WriteLine(String.Format(CultureInfo.InvariantCulture,
            "rank {0} of {1}: sum[0] = {2:F6}, digest {3:x16}", rank, size, sum[0], Fnv1a(bits)));
        Symm.symm_window_free(window);
        Symm.symm_comm_free(comm);
    }

    public static int Main(string[] arguments)
    {
        try
        {
            if (arguments.Length != 3)
                throw new SymmException("usage: AllReduce ADDRESS RANK SIZE");
            // Not in Run: Mono looks for a method's functions when it compiles the method.
            Symm.Load();
            Run(arguments[0], Number(arguments[1]), Number(arguments[2]));
            return 0;
        }
        catch (SymmException error)
        {
            Console.Error.WriteLine(error.Message);
            return 1;
        }
    }
}
