"""headroom.torch on the plain route, on a torch that is not there and a GPU that is the processor."""

import os
import sys
import unittest

from support import LIBRARY, PACKAGE, REPOSITORY, TESTS, Programs

SETTERS = ("set_record_stream_fn", "set_begin_allocate_to_pool", "set_end_allocate_to_pool_fn",
           "set_release_pool", "set_memory_fraction_fn", "set_reset_fn", "set_base_alloc_fn",
           "set_init_fn")

# Prints the error of enable(), which PyTorch survives as it was.
REFUSED = """
    import headroom.torch
    try:
        headroom.torch.enable({})
    except headroom.torch.EnableError as error:
        print(error)
    assert not headroom.torch.is_enabled() and headroom.torch.route() is None
"""


class Import(Programs):
    def test_imports_nothing_of_pytorch(self):
        self.assertEqual(self.run_code("""
            import sys, headroom, headroom.torch
            print("torch" in sys.modules, headroom.torch.is_enabled(), headroom.torch.route())
        """), ["False False None"])

    def test_works_without_pytorch(self):
        self.run_code("import headroom.torch", PYTHONPATH=str(PACKAGE))

    def test_every_name_that_is_promised_is_there_with_types_and_words(self):
        self.run_code("""
            import inspect, headroom.torch, typing
            for name in headroom.torch.__all__:
                thing = getattr(headroom.torch, name)
                assert thing.__doc__, name
                if inspect.isfunction(thing):
                    hints = typing.get_type_hints(inspect.unwrap(thing))
                    missing = set(inspect.signature(thing).parameters) - set(hints)
                    assert not missing and "return" in hints, (name, missing)
        """)


class Errors(Programs):
    def refusal(self, arguments="", **variables):
        lines = self.run_code(REFUSED.format(arguments), **variables)
        self.assertEqual(len(lines), 1, lines)
        return lines[0]

    def test_pytorch_is_missing(self):
        self.assertRegex(self.refusal(PYTHONPATH=str(PACKAGE)), "^PyTorch is missing: .*install it")

    def test_pytorch_cannot_be_imported(self):
        self.assertRegex(self.refusal(FAKE_TORCH='{"fails": true}'), "PyTorch is missing: libcudart")

    def test_pytorch_has_no_cuda(self):
        self.assertRegex(self.refusal(FAKE_TORCH='{"cuda": null}'), "built without CUDA")

    def test_pytorch_is_for_another_maker_of_gpus(self):
        self.assertRegex(self.refusal(FAKE_TORCH='{"cuda": null, "hip": "6.2"}'), "ROCm")

    def test_cuda_has_started(self):
        text = self.refusal(FAKE_TORCH='{"started": true}')
        self.assertRegex(text, "CUDA has started already .*before the first tensor on a GPU")

    def test_cuda_has_started_and_only_the_swap_says_so(self):
        self.assertRegex(self.refusal(FAKE_TORCH='{"late": true}'), "CUDA has started already")

    def test_a_hook_that_is_missing(self):
        for setter in SETTERS:
            with self.subTest(setter):
                text = self.refusal(FAKE_TORCH=f'{{"without": ["{setter}"], "version": "2.0.1"}}')
                self.assertRegex(text, f"^PyTorch 2.0.1 has no {setter} .*: .*; use a newer PyTorch")

    def test_settings_that_are_wrong(self):
        for arguments, pattern in (("limit='20GB'", "limit: '20GB' is not a size: .* 20GiB"),
                                   ("conf='page_mb:x'", "page_mb"),
                                   ("route='fast'", "route 'fast' is not one of auto, full, plain")):
            with self.subTest(arguments):
                self.assertRegex(self.refusal(arguments), pattern)
        for variable, value in (("HEADROOM_LIMIT", "much"), ("HEADROOM_ALLOC_CONF", "page"),
                                ("HEADROOM_TORCH_ROUTE", "fast")):
            with self.subTest(variable):
                self.assertIn(value, self.refusal(**{variable: value}))

    def test_a_library_that_is_not_there_or_is_none(self):
        self.assertRegex(self.refusal(HEADROOM_TORCH_LIBRARY="no/such.so"), "no/such.so is missing")
        other = self.write("other.so", "not a library")
        self.assertRegex(self.refusal(HEADROOM_TORCH_LIBRARY=str(other)), "cannot be loaded")

    def test_functions_say_that_headroom_is_not_enabled(self):
        self.run_code("""
            import headroom.torch as ht
            for call in (ht.report, ht.account, ht.memory_stats, ht.idle_trim, ht.sleep, ht.wake,
                         lambda: ht.record("a.hrt"), ht.scope("x").__enter__):
                try:
                    call()
                except RuntimeError as error:
                    assert "call headroom.torch.enable() first" in str(error), error
                else:
                    raise AssertionError(call)
        """)


class Full(Programs):
    def test_sleep_and_wake_reach_the_compiled_module(self):
        self.run_code("""
            import types
            import headroom.torch as ht
            from headroom.torch import _build, _full
            calls = []

            def sleep(tag, keeps_contents):
                calls.append((tag, keeps_contents))
                return 2048

            def wake(tag):
                calls.append(tag)
                if tag == "large":
                    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 KiB")
                return 1024

            native = types.SimpleNamespace(enable=lambda given: None, sleep=sleep, wake=wake)
            _build.module_for = lambda torch, tries_again=False: None
            _full._import_module = lambda path: native
            assert ht.enable(route="full") == "full"
            assert ht.sleep("weights", keep=True) == 2048
            assert ht.sleep() == 2048
            assert ht.wake("weights") == 1024
            assert ht.wake() == 1024
            assert calls == [("weights", True), ("", False), "weights", ""], calls
            try:
                ht.wake("large")
            except RuntimeError as error:
                assert "out of memory" in str(error)
            else:
                raise AssertionError("nothing was raised")
            try:
                ht.sleep("weights", True)
            except TypeError:
                pass
            else:
                raise AssertionError("keep is given by name")
        """)


class Plain(Programs):
    def test_every_hook_is_registered(self):
        lines = self.run_code("""
            import headroom.torch, torch
            print(headroom.torch.enable(), headroom.torch.route(), headroom.torch.is_enabled())
            print(*sorted(torch.cuda.memory._current.addresses))
        """)
        self.assertEqual(lines, ["plain plain True", " ".join(sorted(SETTERS))])

    def test_a_second_call_is_the_first(self):
        done = self.run_python("-c", "import headroom.torch as t\n"
                                     "t.enable(limit='1GiB'); t.enable(); t.enable(limit='1GiB')\n"
                                     "print(t.enable(limit='2GiB'))")
        self.assertEqual(done.stdout, "plain\n")
        self.assertEqual(done.stderr.count("enabled already, with other settings"), 1)

    def test_pytorchs_questions_are_answered(self):
        self.run_code("""
            import headroom.torch, torch
            headroom.torch.enable()
            assert torch.cuda.memory_allocated() == 0
            block = torch.empty(3 << 20)
            assert torch.cuda.memory_allocated() == 3 << 20 == headroom.torch.memory_allocated()
            del block
            stats = torch.cuda.memory_stats()
            assert stats == headroom.torch.memory_stats()
            assert stats["allocated_bytes.all.peak"] == 3 << 20 and "num_ooms" in stats
            torch.cuda.reset_peak_memory_stats()
            assert headroom.torch.max_memory_allocated() == 0
            assert headroom.torch.memory_reserved() > 0
            torch.cuda.empty_cache()
            assert headroom.torch.memory_reserved() == 0 < headroom.torch.max_memory_reserved()
            torch.cuda.set_per_process_memory_fraction(0.5, 0)
            assert torch.cuda.get_per_process_memory_fraction() == 0.5
            nested = headroom.torch.memory_stats_as_nested_dict()
            assert nested["allocated_bytes"]["all"]["peak"] == 0
            headroom.torch.reset_accumulated_memory_stats()
            assert headroom.torch.memory_stats()["allocation.all.allocated"] == 0
        """)

    def test_pytorchs_questions_are_left_alone_where_that_is_wanted(self):
        self.run_code("""
            import headroom.torch, torch
            headroom.torch.enable(patch=False)
            try:
                torch.cuda.memory_allocated()
            except RuntimeError as error:
                assert "does not yet support" in str(error)
            else:
                raise AssertionError
            assert headroom.torch.memory_allocated() == 0
        """)

    def test_reports_are_of_the_device(self):
        self.run_code("""
            import headroom.torch, torch
            headroom.torch.enable(limit="64MiB")
            block = torch.empty(8 << 20)
            text = headroom.torch.report("cuda:0")
            assert "8MiB" in text and "a limit of 64MiB" in text, text
            account = headroom.torch.account(torch.device("cuda"))
            assert account["limit_bytes"] == 64 << 20 and account["lines"]["live_bytes"] == 8 << 20
            assert sum(account["lines"].values()) == account["total_bytes"]
            for wrong in (True, -1, "cpu", "cuda:x", torch.device("cpu")):
                try:
                    headroom.torch.report(wrong)
                except (TypeError, ValueError):
                    pass
                else:
                    raise AssertionError(wrong)
        """)

    def test_limits_come_from_the_environment_too(self):
        self.run_code("""
            import headroom.torch, torch
            headroom.torch.enable()
            torch.empty(512)
            assert headroom.torch.account()["limit_bytes"] == 32 << 20
        """, HEADROOM_LIMIT="32MiB")

    def test_scopes_nest_and_have_their_own_peaks(self):
        self.run_code("""
            import headroom.torch, torch
            headroom.torch.enable()
            kept = torch.empty(1 << 20)
            with headroom.torch.scope("step") as step:
                a = torch.empty(8 << 20)
                del a
                headroom.torch.reset_peak_memory_stats()
                with headroom.torch.scope("attention") as attention:
                    b = torch.empty(2 << 20)
                    assert attention.peak_allocated == 0
                    del b
            assert step.path == "step" and attention.path == "step/attention"
            assert step.peak_allocated == 9 << 20, step
            assert attention.peak_allocated == 3 << 20, attention
            @headroom.torch.scope("decorated")
            def function():
                return torch.empty(1 << 20)
            function(), function()
            try:
                with headroom.torch.scope("failing"):
                    raise KeyError
            except KeyError:
                pass
            with headroom.torch.scope("after") as after:
                pass
            assert after.path == "after"
        """)

    def test_a_thousand_scopes_in_four_threads(self):
        self.run_code("""
            import threading, headroom.torch, torch
            headroom.torch.enable()
            wrong = []
            def work(name):
                for i in range(1000):
                    with headroom.torch.scope(name) as outer, headroom.torch.scope(str(i)) as inner:
                        torch.empty(4096)
                    if (outer.path, inner.path) != (name, f"{name}/{i}"):
                        wrong.append((outer, inner))
            threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
            [t.start() for t in threads], [t.join() for t in threads]
            assert not wrong, wrong[:3]
            assert headroom.torch.memory_allocated() == 0
        """)

    def test_idle_memory_goes_back_and_stays_when_turned_off(self):
        self.run_code("""
            import time, headroom.torch, torch
            headroom.torch.enable()
            headroom.torch.idle_trim(after="20ms", keep=0)
            torch.empty(64 << 20)
            end = time.monotonic() + 60
            while headroom.torch.memory_reserved() > 0 and time.monotonic() < end:
                time.sleep(0.01)
            assert headroom.torch.memory_reserved() == 0
            headroom.torch.idle_trim(after=0)
            torch.empty(64 << 20)
            time.sleep(0.2)
            assert headroom.torch.memory_reserved() > 0
        """)

    def test_what_only_the_full_route_does_says_so(self):
        self.run_code("""
            import headroom.torch as ht
            ht.enable()
            for call in (ht.sleep, ht.wake, lambda: ht.record("a.hrt")):
                try:
                    call()
                except ht.NotOnThisRoute as error:
                    assert "needs the full route" in str(error)
                else:
                    raise AssertionError(call)
            try:
                ht.record("a.pickle")
            except ValueError as error:
                assert ".hrt" in str(error)
        """)

    def test_the_child_of_a_fork_may_free_and_exit(self):
        self.run_code("""
            import os, headroom.torch, torch
            headroom.torch.enable()
            headroom.torch.idle_trim("10ms", 0)
            block = torch.empty(1 << 20)
            child = os.fork()
            if child == 0:
                del block
                os._exit(0 if headroom.torch.is_enabled() else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert headroom.torch.memory_allocated() == 1 << 20
        """)


class OldName(Programs):
    """`import headroom_torch` of before, in a clone and in a build folder."""

    def test_install_is_the_plain_route_with_every_hook(self):
        for folder in (REPOSITORY / "bindings" / "pytorch", os.environ["HEADROOM_TEST_BUILD"]):
            for where in (self.folder, REPOSITORY):
                done = self.run_python("-c", f"""
import os, sys; os.chdir({str(where)!r}); sys.path[0:0] = ["", {str(folder)!r}]
import headroom_torch
headroom_torch.install({LIBRARY!r})
import torch, headroom.torch
print(headroom.torch.route(), len(torch.cuda.memory._current.addresses))
""", PYTHONPATH=str(TESTS / "fake"), HEADROOM_TORCH_LIBRARY=None)
                self.assertEqual(done.stdout, "plain 8\n")

    def test_its_library_is_found_or_asked_for(self):
        self.run_code(f"""
            import sys; sys.path.insert(0, {os.environ["HEADROOM_TEST_BUILD"]!r})
            import headroom_torch, os
            assert os.path.samefile(headroom_torch.find_library(),
                                    {os.environ["HEADROOM_TEST_BUILD"]!r} + "/libheadroom_torch.so")
            try:
                headroom_torch.install("no/such.so")
            except FileNotFoundError as error:
                assert "no/such.so" in str(error)
            else:
                raise AssertionError
        """)


class Sizes(unittest.TestCase):
    def test_sizes_are_read_as_everywhere(self):
        sys.path.insert(0, str(PACKAGE))
        from headroom.torch._sizes import parse_duration_ms, parse_size

        for text, size in (("0", 0), ("512", 512), ("512B", 512), ("20MiB", 20 << 20),
                           ("1.5 GiB", 3 << 29), ("1gib", 1 << 30), (7, 7),
                           ("18446744073709551615", 2**64 - 1), (2**64 - 1, 2**64 - 1)):
            self.assertEqual(parse_size(text), size)
        for text in ("", "x", "1.", ".5GiB", "20GB", "20G", "1 e9", "-1", "1  GiB", "16EiB", "1GiB ",
                     "18446744073709551616", -1, 2**64, "\u0661GiB"):
            with self.assertRaises(ValueError, msg=repr(text)):
                parse_size(text)
        for wrong in (1.5, True, None):
            with self.assertRaises(TypeError):
                parse_size(wrong)
        for text, milliseconds in (("500ms", 500), ("5s", 5000), ("2min", 120_000), (0.25, 250)):
            self.assertEqual(parse_duration_ms(text), milliseconds)
        for text in ("5", "soon", "-1s", -1, float("nan"), float("inf")):
            with self.assertRaises(ValueError, msg=repr(text)):
                parse_duration_ms(text)


if __name__ == "__main__":
    unittest.main()
