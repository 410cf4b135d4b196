package org.junit;

import java.util.Arrays;
import java.util.Objects;

public class Assert {
    public static void assertTrue(String message, boolean condition) {
        if (!condition) throw new AssertionError(message);
    }

    public static void assertEquals(String message, Object expected, Object found) {
        assertTrue(message, Objects.equals(expected, found));
    }

    public static void assertEquals(String message, long expected, long found) {
        assertTrue(message, expected == found);
    }

    public static void assertArrayEquals(float[] expected, float[] found, float delta) {
        for (int at = 0; at < Math.max(expected.length, found.length); at++)
            assertTrue("element " + at + ": " + found[at] + ", expected " + expected[at],
                Math.abs(expected[at] - found[at]) <= delta);
    }

    public static void assertArrayEquals(byte[] expected, byte[] found) {
        assertTrue("other bytes", Arrays.equals(expected, found));
    }
}
