package recorded;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import org.junit.Test;

/** Runs the methods of a test class, says which passed, and ends with 1 where one did not. */
public final class RunTests {
    public static void main(String[] names) throws Exception {
        int failed = 0;
        for (String name : names) {
            Class<?> kind = Class.forName(name);
            for (Method method : kind.getMethods()) {
                if (method.getAnnotation(Test.class) == null) continue;
                try {
                    method.invoke(kind.getDeclaredConstructor().newInstance());
                    System.out.println("pass " + method.getName());
                } catch (InvocationTargetException error) {
                    System.out.println("FAIL " + method.getName() + ": " + error.getCause());
                    failed++;
                }
            }
        }
        System.exit(failed == 0 ? 0 : 1);
    }
}
