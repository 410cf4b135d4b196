package android.app;

import android.content.Context;

public class Instrumentation {
    public Context getTargetContext() {
        return new Context();
    }

    public Context getContext() {
        return new Context();
    }
}
