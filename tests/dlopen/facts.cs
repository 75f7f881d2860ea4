// Prints what AllReduce.cs repeats of symm.h, as JSON. See facts_test.py.
using System;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;

public static class Facts
{
    public static void Main()
    {
        Type options = typeof(Symm.CommOptions);
        var constants = typeof(Symm).GetFields(BindingFlags.Static | BindingFlags.Public)
            .Where(f => f.IsLiteral && f.Name.StartsWith("SYMM_"))
            .Select(f => String.Format("\"{0}\": {1}", f.Name, f.GetRawConstantValue()));
        var fields = options.GetFields()
            .Select(f => String.Format("\"{0}\": [{1}, {2}]", f.Name,
                                       Marshal.OffsetOf(options, f.Name),
                                       Marshal.SizeOf(f.FieldType)));
        Console.WriteLine("{{\"constants\": {{{0}}}, \"structs\": {{\"symm_comm_options\": " +
                          "{{\"size\": {1}, \"fields\": {{{2}}}}}}}}}",
                          String.Join(", ", constants), Marshal.SizeOf(options),
                          String.Join(", ", fields));
    }
}
