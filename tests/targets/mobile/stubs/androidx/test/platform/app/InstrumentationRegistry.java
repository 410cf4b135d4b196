package androidx.test.platform.app;

import android.app.Instrumentation;

public final class InstrumentationRegistry {
    public static Instrumentation getInstrumentation() {
        return new Instrumentation();
    }
}
