#!/usr/bin/env python3
"""Numbers that the example programs had to copy from symm.h (constants, where fields lie) are the
installed header's. A language that reads the header itself has nothing to compare."""
import ctypes
import json
import os
import re
import subprocess
import tempfile
import unittest

import support

with open(os.path.join(support.OUT, "header.txt")) as place:
    HEADER = place.read().rstrip("\n")
USED = {"SYMM_OK", "SYMM_CPU", "SYMM_FLOAT32", "SYMM_SUM"}  # by every program


def output(command, **variables):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                          timeout=120, env=dict(os.environ, **variables)).stdout.decode()


def facts_of_the_header():
    """Every enum constant and struct, by a C program that is made from the header's text."""
    text = output(["cc", "-E", "-P", HEADER])
    constants = re.findall(r"\b(SYMM_\w+) = ", text)
    structs = {name: re.findall(r"(\w+);", body) for body, name in
               re.findall(r"typedef struct symm_\w+ \{(.*?)\} (symm_\w+);", text, re.S)}
    lines = ['F("%s", (int)%s);' % (name, name) for name in constants]
    for struct, fields in structs.items():
        lines.append('F("%s", (int)sizeof(%s));' % (struct, struct))
        for field in fields:
            member = "((%s*)0)->%s" % (struct, field)
            lines.append('F("%s.%s", (int)offsetof(%s, %s)); F("%s.%s size", (int)sizeof(%s));' % (
                struct, field, struct, field, struct, field, member))
    program = ('#include <stdio.h>\n#include "%s"\n#define F(n, v) printf("%%s\\t%%d\\n", n, v)\n'
               "int main(void) { %s return 0; }\n" % (HEADER, "\n".join(lines)))
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "facts")
        with open(path + ".c", "w") as source:
            source.write(program)
        output(["cc", path + ".c", "-o", path])
        values = dict(line.split("\t") for line in output([path]).splitlines())
    number = {name: int(value) for name, value in values.items()}
    return {
        "constants": {name: number[name] for name in constants},
        "structs": {
            struct: {"size": number[struct],
                     "fields": {field: [number["%s.%s" % (struct, field)],
                                        number["%s.%s size" % (struct, field)]]
                                for field in fields}}
            for struct, fields in structs.items()
        },
    }


class Facts(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.header = facts_of_the_header()

    def compare(self, client, structs=("symm_comm_options",)):
        self.assertLessEqual(USED, client["constants"].keys())
        self.assertEqual(
            client["constants"],
            {name: self.header["constants"].get(name) for name in client["constants"]})
        self.assertEqual(client["structs"],
                         {name: self.header["structs"].get(name) for name in structs})

    def need(self, client):
        if client not in support.clients():
            self.skipTest("%s is not to be had here" % client)

    def test_of_the_header_are_found(self):
        self.assertGreater(len(self.header["constants"]), 40)
        self.assertEqual(self.header["structs"].keys(),
                         {"symm_comm_options", "symm_window_options"})
        self.assertEqual(self.header["structs"]["symm_comm_options"]["fields"]["name"], [8, 8])

    def test_of_ctypes_are_the_headers(self):
        client, options = support.ctypes_client, support.ctypes_client.CommOptions
        self.compare({
            "constants": {n: v for n, v in vars(client).items() if n.startswith("SYMM_")},
            "structs": {"symm_comm_options": {
                "size": ctypes.sizeof(options),
                "fields": {name: [getattr(options, name).offset, getattr(options, name).size]
                           for name, _ in options._fields_}}},
        })

    def test_of_ruby_are_the_headers(self):
        self.need("ruby")
        self.compare(json.loads(output(["ruby", os.path.join(support.HERE, "facts.rb"),
                                        os.path.join(support.CLIENTS, "all_reduce.rb")])))

    def test_of_node_are_the_headers(self):
        self.need("node")
        self.compare(json.loads(output(["node", os.path.join(support.HERE, "facts.js")])),
                     ("symm_comm_options", "symm_window_options"))

    def test_of_go_are_the_headers(self):
        self.need("go")
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "facts.json")
            output([os.path.join(support.OUT, "go_test"), "-test.run=^TestFacts$"],
                   SYMM_TEST_FACTS=path)
            with open(path) as written:
                self.compare(json.load(written))

    def test_of_csharp_are_the_headers(self):
        self.need("csharp")
        program = os.path.join(support.OUT, "Facts.exe")
        output(["mcs", "-out:" + program, "-r:" + os.path.join(support.OUT, "AllReduce.exe"),
                os.path.join(support.HERE, "facts.cs")])
        self.compare(json.loads(output(["mono", program])))


if __name__ == "__main__":
    support.main()
